// The figure of bench overlap: a timeline of computing and copying.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>

#include <lockstep/app/plot/figures/figures.h>
#include <lockstep/app/plot/picture/ticks.h>
#include <lockstep/support/counted.h>

namespace lockstep::plot {
namespace {

constexpr int kComputing = 0;
constexpr int kCopying = 4;
constexpr double kTrackHeight = 30;

struct Experiment {
  std::string name = {};
  std::vector<std::string> tracks = {};  // of each bar; after sorting, of each track
  std::vector<Bar> bars = {};            // in ms
};

Experiment& experiment_named(std::vector<Experiment>& experiments, const std::string& name) {
  const auto known = std::find_if(experiments.begin(), experiments.end(),
                                  [&](const Experiment& experiment) { return experiment.name == name; });
  return known != experiments.end() ? *known : experiments.emplace_back(Experiment{.name = name});
}

void add_event(std::vector<Experiment>& experiments, const std::string& prefix, const Json& event) {
  const auto begin = number_at(event, "begin"), end = number_at(event, "end");
  if (!begin || !end || *end < *begin) return;
  auto& experiment = experiment_named(experiments, prefix + event.at("experiment").get<std::string>());
  const std::string track = event.at("track");
  const std::string name = event.value("name", "");
  // A device that copies its own results does so in its compute track.
  const bool copies = track.find("copy") != std::string::npos || name.starts_with("copy");
  experiment.tracks.push_back(track);
  experiment.bars.push_back(
      {.begin = 1e3 * *begin, .end = 1e3 * *end, .color = copies ? kCopying : kComputing, .label = name});
}

// Sorts the tracks by name, so that a device's tracks are adjacent.
void sort_tracks(Experiment& experiment) {
  const std::set<std::string> names(experiment.tracks.begin(), experiment.tracks.end());
  for (size_t i = 0; i < experiment.bars.size(); ++i) {
    const auto place = std::distance(names.begin(), names.find(experiment.tracks[i]));
    experiment.bars[i].track = static_cast<int>(place);
  }
  experiment.tracks.assign(names.begin(), names.end());
}

// Lets each experiment begin at 0. Returns the end of the longest.
double begin_at_zero(std::vector<Experiment>& experiments) {
  double last = 0;
  for (auto& experiment : experiments) {
    double begin = std::numeric_limits<double>::infinity();
    for (const auto& bar : experiment.bars) begin = std::min(begin, bar.begin);
    for (auto& bar : experiment.bars) {
      bar.begin -= begin;
      bar.end -= begin;
      last = std::max(last, bar.end);
    }
  }
  return last;
}

Panel panel_of(const Experiment& experiment, const Axis& time) {
  const auto tracks = static_cast<double>(experiment.tracks.size());
  Panel panel{.title = experiment.name, .x = time, .bars = experiment.bars, .height = kTrackHeight * tracks};
  panel.y = {.low = tracks, .high = 0};  // the first track is on top
  for (size_t i = 0; i < experiment.tracks.size(); ++i) {
    panel.y.ticks.push_back({static_cast<double>(i) + .5, experiment.tracks[i]});
  }
  return panel;
}

}  // namespace

Figure overlap_figure(std::span<const Source> benches) {
  std::vector<Experiment> experiments;
  for (const auto& source : benches) {
    const auto prefix = benches.size() > 1 ? source.name + ": " : "";
    const auto before = experiments.size();
    for (const auto& event : source.json.value("timeline", Json::array()))
      add_event(experiments, prefix, event);
    if (experiments.size() == before) {
      nothing_to_draw(source, "timeline");
    }
  }
  for (auto& experiment : experiments) sort_tracks(experiment);
  const double last = begin_at_zero(experiments);
  auto time = linear_axis("time (ms)", std::vector{0., last});
  if (last > 0) {  // ends at the last bar, not at the next tick, to leave room for bars
    time.high = last;
    std::erase_if(time.ticks, [&](const Tick& tick) { return tick.at > last; });
  }

  Figure figure{.title = "Computing and copying, side by side or one after the other"};
  for (const auto& experiment : experiments) figure.panels.push_back(panel_of(experiment, time));
  for (size_t i = 0; i + 1 < figure.panels.size(); ++i)
    figure.panels[i].x.label.clear();  // only below the last panel
  figure.legend = {{.text = "computing", .style = {.color = kComputing}, .bar = true},
                   {.text = "copying", .style = {.color = kCopying}, .bar = true}};
  figure.summary = "a timeline of " + counted(static_cast<int64_t>(experiments.size()), "experiment");
  return figure;
}

}  // namespace lockstep::plot
