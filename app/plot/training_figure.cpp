// The curves of training runs.
#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include <lockstep/app/plot/figures.h>
#include <lockstep/app/plot/lines.h>
#include <lockstep/app/plot/ticks.h>
#include <lockstep/support/counted.h>

namespace lockstep::plot {
namespace {

struct Run {
  Parts parts = {};
  std::vector<Point> test_accuracy = {};
  std::vector<Point> train_accuracy = {};
  std::vector<Point> test_loss = {};
  std::vector<Point> step_loss = {};
};

std::string devices_of(const Json& plan) {
  std::string text;
  for (const auto& device : plan.value("devices", Json::array())) {
    text += (text.empty() ? "[" : ", ") + device.get<std::string>();
  }
  return text.empty() ? "" : text + "]";
}

// "lr 0.2"; nothing where the plan does not say.
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
  if (const auto y = number_at(line, key)) points.push_back({x, *y});
}

Run read_run(const Source& source) {
  const auto& plan = source.json.front();
  const double steps = plan.at("steps_per_epoch").get<double>();
  if (steps < 1) nothing_to_draw(source, "epoch of at least one step");
  Run run{.parts = parts_of(source.name, plan)};
  for (const auto& epoch : events_of(source, "epoch")) {
    const double x = epoch.at("epoch").get<double>();
    add_point(run.test_accuracy, x, epoch, "test_accuracy");
    add_point(run.train_accuracy, x, epoch, "train_accuracy");
    add_point(run.test_loss, x, epoch, "test_loss");
  }
  for (const auto& step : events_of(source, "step")) {
    add_point(run.step_loss, step.at("epoch").get<double>() - 1 + step.at("step").get<double>() / steps, step,
              "loss");
  }
  if (run.test_accuracy.empty()) nothing_to_draw(source, "epoch line (a run writes one at the end of each)");
  return run;
}

using Curve = std::vector<Point> Run::*;

// Pale lines first, so that the others lie on top.
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

}  // namespace

Figure training_figure(std::span<const Source> metrics) {
  std::vector<Run> runs;
  for (const auto& source : metrics) runs.push_back(read_run(source));
  double last_epoch = 1;
  std::vector<Parts> parts;
  for (const auto& run : runs) {
    parts.push_back(run.parts);
    last_epoch = std::max(last_epoch, run.test_accuracy.back().x);
  }
  const auto names = names_by_difference(parts);

  Figure figure{.title = "Test accuracy and losses", .subtitle = names.common, .columns = 2};
  figure.panels = {
      panel_of("accuracy", "accuracy (share of the images)",
               curves(runs, &Run::train_accuracy, Line::kSolid, &Run::test_accuracy), last_epoch),
      panel_of("loss", "loss (mean cross-entropy)",
               curves(runs, &Run::step_loss, Line::kThin, &Run::test_loss), last_epoch)};
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto name = runs.size() > 1 ? names.own[i] : "test, after each epoch";
    figure.legend.push_back({.text = name, .style = style_of_line(static_cast<int>(i))});
  }
  figure.legend.push_back({.text = runs.size() > 1 ? "pale, without marks: while training" : "while training",
                           .style = {.color = runs.size() > 1 ? kInk : 0, .pale = true}});
  figure.summary = "test accuracy and losses of " + counted(static_cast<int64_t>(runs.size()), "run");
  return figure;
}

}  // namespace lockstep::plot
