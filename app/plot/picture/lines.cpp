#include <lockstep/app/plot/picture/lines.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <lockstep/support/counted.h>

namespace lockstep::plot {
namespace {

std::string joined(const Parts& parts) {
  std::string text;
  for (const auto& part : parts) {
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

}  // namespace

Style style_of_line(int i) {
  constexpr int kColors = 7;
  constexpr std::array kMarkers{Marker::kCircle,  Marker::kSquare,       Marker::kTriangle,
                                Marker::kDiamond, Marker::kTriangleDown, Marker::kCross};
  constexpr int kBoth = kColors * static_cast<int>(kMarkers.size());  // their numbers have no common divisor
  return {.color = i % kColors, .marker = kMarkers[static_cast<size_t>(i + i / kBoth) % kMarkers.size()]};
}

Names names_by_difference(const std::vector<Parts>& lines) {
  Names names;
  if (lines.empty()) return names;
  std::vector<Parts> own(lines.size());
  Parts common;
  for (size_t part = 0; part < lines.front().size(); ++part) {
    const bool same = std::all_of(lines.begin(), lines.end(),
                                  [&](const Parts& line) { return line.at(part) == lines.front().at(part); });
    if (same) {
      common.push_back(lines.front().at(part));
    } else {
      for (size_t i = 0; i < lines.size(); ++i) own[i].push_back(lines[i][part]);
    }
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    names.own.push_back(joined(own[i].empty() ? lines[i] : own[i]));
  }
  names.common = joined(common);
  return names;
}

void Lines::add(Parts parts, Point point) {
  auto line =
      std::find_if(lines_.begin(), lines_.end(), [&](const Line& known) { return known.parts == parts; });
  if (line == lines_.end()) line = lines_.insert(line, {std::move(parts), {}});
  line->points.push_back(std::move(point));
}

void Lines::sort_by_x() {
  for (auto& line : lines_) {
    std::stable_sort(line.points.begin(), line.points.end(),
                     [](const Point& a, const Point& b) { return a.x < b.x; });
  }
}

std::vector<Parts> Lines::parts() const {
  std::vector<Parts> parts;
  for (const auto& line : lines_) parts.push_back(line.parts);
  return parts;
}

std::vector<double> Lines::coordinates(double Point::*axis) const {
  std::vector<double> values;
  for (const auto& line : lines_) {
    for (const auto& point : line.points) values.push_back(point.*axis);
  }
  return values;
}

void add_lines(Figure& figure, const Lines& lines, const std::string& what) {
  const auto names = names_by_difference(lines.parts());
  for (size_t i = 0; i < lines.lines().size(); ++i) {
    const auto style = style_of_line(static_cast<int>(i));
    figure.panels.front().series.push_back({style, lines.lines()[i].points});
    if (names.own.size() > 1) figure.legend.push_back({.text = names.own[i], .style = style});
  }
  figure.subtitle = names.common;
  figure.summary = what + ", " + counted(static_cast<int64_t>(lines.lines().size()), "line");
}

}  // namespace lockstep::plot
