// The figure of tests with their confusion.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/app/plot/figures/figures.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep::plot {
namespace {

constexpr double kMostRowHeight = 48, kLeastRowHeight = 22;  // pixels, but where the matrix is the highest
constexpr double kUsualHeight = 480, kMostHeight = 860;      // of the whole matrix
constexpr size_t kMostNamedTicks = 40;

// Few classes have all their labels, more every so many that the labels do not touch.
std::vector<Tick> ticks(const std::vector<std::string>& labels) {
  const size_t step = (labels.size() + kMostNamedTicks - 1) / kMostNamedTicks;
  std::vector<Tick> ticks;
  for (size_t i = 0; i < labels.size(); i += step) {
    ticks.push_back({.at = static_cast<double>(i) + .5, .label = labels[i]});
  }
  return ticks;
}

Axis class_axis(const std::string& label, const std::vector<std::string>& labels, bool down) {
  const auto end = static_cast<double>(labels.size());
  return {.label = label, .low = down ? end : 0, .high = down ? 0 : end, .ticks = ticks(labels)};
}

std::vector<Cell> cells_of(const Source& test, size_t classes) {
  const auto counts = test.json.at("confusion").at("counts").get<std::vector<std::vector<int64_t>>>();
  std::vector<Cell> cells;
  for (size_t row = 0; row < counts.size(); ++row) {
    int64_t all = 0;
    for (const auto count : counts[row]) all += count;
    for (size_t column = 0; column < counts[row].size(); ++column) {
      const auto count = counts[row][column];
      cells.push_back({.column = static_cast<int>(column),
                       .row = static_cast<int>(row),
                       .share = all > 0 ? static_cast<double>(count) / static_cast<double>(all) : 0,
                       .label = count > 0 ? with_commas(count) : ""});
    }
  }
  if (classes == 0 || counts.size() != classes || cells.size() != classes * classes) {
    throw DataError(
        fmt::format("{} has {} counts for {} classes", lockstep::in_quotes(test.path), cells.size(), classes),
        "write it again: lockstep eval --confusion --json");
  }
  return cells;
}

Panel panel_of(const Source& test) {
  const auto names = test.json.at("confusion").at("classes").get<std::vector<std::string>>();
  std::vector<std::string> rows, columns;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto number = std::to_string(i);
    rows.push_back(names[i] == number ? number : fmt::format("{} {}", number, names[i]));
    columns.push_back(number);
  }
  Panel panel{.title = fmt::format("{}: {} on {}", test.name, test.json.value("model", "model"),
                                   test.json.value("data", "data"))};
  panel.cells = cells_of(test, names.size());
  panel.x = class_axis("answer", columns, /*down=*/false);
  panel.y = class_axis("class", rows, /*down=*/true);
  const auto classes = static_cast<double>(names.size());
  panel.height =
      std::min(kMostHeight, classes * std::clamp(kUsualHeight / classes, kLeastRowHeight, kMostRowHeight));
  return panel;
}

}  // namespace

Figure confusion_figure(std::span<const Source> tests) {
  Figure figure{.title = "Confusion of classes",
                .subtitle = "test rows by their class and by the answer; as dark as the share of the class"};
  for (const auto& test : tests) figure.panels.push_back(panel_of(test));
  figure.summary = fmt::format("confusion of {} classes, {}", figure.panels.front().y.low,
                               counted(std::ssize(tests), "test"));
  return figure;
}

}  // namespace lockstep::plot
