// The figure of training runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include <lockstep/app/plot/figures/figures.h>
#include <lockstep/app/plot/picture/lines.h>
#include <lockstep/app/plot/picture/ticks.h>
#include <lockstep/app/run_files/row_sums.h>
#include <lockstep/support/counted.h>

namespace lockstep::plot {
namespace {

struct Run {
  Parts parts = {};
  double epochs = 0;          // of its last point
  std::string headline = {};  // the first metric of its epochs, such as "accuracy"; or empty
  std::vector<Point> test_headline = {};
  std::vector<Point> train_headline = {};
  std::vector<Point> test_loss = {};
  std::vector<Point> train_loss = {};  // by steps, or by epochs where these have more lines
  std::string loss = {};               // its name
};

std::string devices_of(const Json& plan) {
  std::string text;
  for (const auto& device : plan.value("devices", Json::array())) {
    text += (text.empty() ? "[" : ", ") + device.get<std::string>();
  }
  return text.empty() ? "" : text + "]";
}

// "lr 0.2", or empty if the plan has no value.
std::string setting(const Json& plan, const std::string& key, const std::string& name) {
  const auto value = plan.value(key, Json());
  if (value.is_null()) return "";
  if (value.is_string()) return name + value.get<std::string>();
  if (value.is_number_integer()) return fmt::format("{} {}", name, value.get<int64_t>());
  return fmt::format("{} {:g}", name, value.get<double>());
}

Parts parts_of(const std::string& name, const Json& plan) {
  return {name,
          setting(plan, "model", ""),
          devices_of(plan),
          setting(plan, "batch_size", "batch"),
          setting(plan, "optimizer", ""),
          setting(plan, "lr", "lr"),
          setting(plan, "schedule", "schedule "),
          setting(plan, "momentum", "momentum"),
          setting(plan, "precision", ""),
          setting(plan, "seed", "seed")};
}

void add_point(std::vector<Point>& points, double x, const Json& line, const std::string& key) {
  const auto y = number_at(line, key);
  if (y && std::isfinite(x)) points.push_back({x, *y});
}

// The first metric of an epoch's event, beside the loss.
std::string headline_of(const Json& epoch) {
  constexpr std::string_view kTest = "test_";
  for (const auto& [key, value] : epoch.items()) {
    const bool is_metric = key.starts_with(kTest) && key != "test_loss" && key != "test_seconds";
    if (is_metric) return key.substr(kTest.size());
  }
  return "";
}

// Models and programs of classes have the same.
std::string loss_of(const Json& plan) {
  const auto given = setting(plan, "loss", "");
  const bool classes =
      given.empty() || given.starts_with("classification") || given.starts_with("cross_entropy");
  return classes ? "cross-entropy" : given;
}

Run read_run(const Source& source) {
  const auto& plan = source.json.front();
  const double steps = plan.at("steps_per_epoch").get<double>();
  if (steps < 1) nothing_to_draw(source, "epoch of at least one step");
  // A run that --limit-steps ends is evaluated in the middle of an epoch.
  const auto last_step = number_at(plan, "total_steps");
  Run run{.parts = parts_of(source.name, plan), .loss = loss_of(plan)};
  std::vector<Point> epoch_loss;
  for (const auto& epoch : events_of(source, "epoch")) {
    const double ended = epoch.at("epoch").get<double>();
    const double x = last_step ? std::min(ended, *last_step / steps) : ended;
    if (run.headline.empty()) run.headline = headline_of(epoch);
    add_point(run.test_headline, x, epoch, "test_" + run.headline);
    add_point(run.train_headline, x, epoch, "train_" + run.headline);
    add_point(run.test_loss, x, epoch, "test_loss");
    add_point(epoch_loss, x, epoch, "train_loss");
  }
  for (const auto& step : events_of(source, "step")) {
    add_point(run.train_loss, step.at("epoch").get<double>() - 1 + step.at("step").get<double>() / steps,
              step, "loss");
  }
  if (run.train_loss.size() < epoch_loss.size()) run.train_loss = std::move(epoch_loss);
  if (run.test_headline.empty() && run.train_loss.empty()) {
    nothing_to_draw(source, "step or epoch line (a run writes the first after --log-every steps)");
  }
  for (const auto* points : {&run.test_headline, &run.train_loss}) {
    for (const auto& point : *points) run.epochs = std::max(run.epochs, point.x);
  }
  return run;
}

using Curve = std::vector<Point> Run::*;

// Draws pale lines first, so that the others lie on top.
std::vector<Series> curves(const std::vector<Run>& runs, Curve training, Line training_line, Curve test) {
  std::vector<Series> series;
  for (const bool pale : {true, false}) {
    for (size_t i = 0; i < runs.size(); ++i) {
      auto style = style_of_line(static_cast<int>(i));
      style.pale = pale;
      if (pale) {
        style.marker = Marker::kNone;
        style.line = training_line;
      }
      const auto& points = runs[i].*(pale ? training : test);
      if (!points.empty()) series.push_back({style, points});
    }
  }
  return series;
}

Panel panel_of(std::string title, std::string y_label, std::vector<Series> series, double last_epoch) {
  std::vector<double> ys;
  for (const auto& line : series) {
    for (const auto& point : line.points) ys.push_back(point.y);
  }
  Panel panel{.title = std::move(title), .series = std::move(series)};
  panel.x = linear_axis("epoch", std::vector{0., last_epoch}, 1);
  panel.y = linear_axis(std::move(y_label), ys);
  return panel;
}

// Names the loss that all runs have.
std::string loss_label(const std::vector<Run>& runs) {
  const auto& loss = runs.front().loss;
  const bool same = std::ranges::all_of(runs, [&](const Run& run) { return run.loss == loss; });
  if (!same) return "loss (mean)";
  return loss == "cross-entropy" ? "loss (mean cross-entropy)" : fmt::format("loss (mean, {})", loss);
}

void add_legend(Figure& figure, const Names& names, bool tested) {
  const bool several = names.own.size() > 1;
  for (size_t i = 0; i < names.own.size() && (several || tested); ++i) {
    figure.legend.push_back({.text = several ? names.own[i] : "test, after each epoch",
                             .style = style_of_line(static_cast<int>(i))});
  }
  figure.legend.push_back({.text = several ? "pale, without marks: while training" : "while training",
                           .style = {.color = several ? kInk : 0, .pale = true}});
}

}  // namespace

Figure training_figure(std::span<const Source> metrics) {
  std::vector<Run> runs;
  for (const auto& source : metrics) runs.push_back(read_run(source));
  double last_epoch = 1;
  std::vector<Parts> parts;
  for (const auto& run : runs) {
    parts.push_back(run.parts);
    last_epoch = std::max(last_epoch, std::ceil(run.epochs));
  }
  const auto names = names_by_difference(parts);

  // Runs have no accuracy during their first epoch.
  const auto with_headline =
      std::find_if(runs.begin(), runs.end(), [](const Run& run) { return !run.test_headline.empty(); });
  const bool tested = with_headline != runs.end();
  const auto name = tested ? with_headline->headline : "";
  Figure figure{.title = tested ? fmt::format("Test {} and losses", name) : "Losses while training",
                .subtitle = names.common};
  if (tested) {
    figure.columns = 2;
    const auto* form = name == epoch_name({.name = "top1"}) ? " (share of the images)" : " (mean)";
    figure.panels.push_back(panel_of(name, name + form,
                                     curves(runs, &Run::train_headline, Line::kSolid, &Run::test_headline),
                                     last_epoch));
  }
  figure.panels.push_back(panel_of("loss", loss_label(runs),
                                   curves(runs, &Run::train_loss, Line::kThin, &Run::test_loss), last_epoch));
  add_legend(figure, names, tested);
  figure.summary = (tested ? fmt::format("test {} and losses of ", name) : "losses while training of ") +
                   counted(static_cast<int64_t>(runs.size()), "run");
  return figure;
}

}  // namespace lockstep::plot
