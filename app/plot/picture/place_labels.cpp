#include <lockstep/app/plot/picture/place_labels.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::plot {
namespace {

constexpr double kGap = 3;  // around a label

bool overlap(const Rectangle& a, const Rectangle& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

bool within(const Rectangle& inner, const Rectangle& outer) {
  return inner.left >= outer.left && inner.right <= outer.right && inner.top >= outer.top &&
         inner.bottom <= outer.bottom;
}

// Clips the segment to the box, one side after another (Liang and Barsky).
bool crosses(const Position& from, const Position& to, const Rectangle& box) {
  double enters = 0, leaves = 1;
  const double dx = to.x - from.x, dy = to.y - from.y;
  const std::array<std::array<double, 2>, 4> sides{{{-dx, from.x - box.left},
                                                    {dx, box.right - from.x},
                                                    {-dy, from.y - box.top},
                                                    {dy, box.bottom - from.y}}};
  for (const auto& [slope, room] : sides) {
    if (slope == 0) {
      if (room < 0) return false;
    } else if (slope < 0) {
      enters = std::max(enters, room / slope);
    } else {
      leaves = std::min(leaves, room / slope);
    }
  }
  return enters <= leaves;
}

bool crossed(const Rectangle& box, const std::vector<std::vector<Position>>& lines) {
  return std::any_of(lines.begin(), lines.end(), [&](const auto& line) {
    for (size_t i = 1; i < line.size(); ++i) {
      if (crosses(line[i - 1], line[i], box)) return true;
    }
    return false;
  });
}

double distance(const Rectangle& box, const Position& at) {
  return std::hypot((box.left + box.right) / 2 - at.x, (box.top + box.bottom) / 2 - at.y);
}

// Returns true if no other marker is nearer to the label than its own.
bool unmistakable(const Rectangle& box, const LabelledPoint& own, const std::vector<LabelledPoint>& points) {
  return std::none_of(points.begin(), points.end(), [&](const LabelledPoint& other) {
    return distance(box, other.at) < .999 * distance(box, own.at);
  });
}

// Candidate places around the point, the most usual ones first.
std::vector<Rectangle> places_around(const LabelledPoint& point, double height) {
  std::vector<Rectangle> places;
  for (const double distance :
       {point.radius + kGap, point.radius + kGap + height / 2, point.radius + 2 * height}) {
    const double right = point.at.x + distance, left = point.at.x - distance - point.width;
    const double middle = point.at.x - point.width / 2, above = point.at.y - distance - height;
    const double below = point.at.y + distance, beside = point.at.y - height / 2;
    const std::array<Position, 8> corners{{{middle, above},
                                           {middle, below},
                                           {right, below - distance / 2},
                                           {left, above + distance / 2},
                                           {right, beside},
                                           {left, beside},
                                           {right, above + distance / 2},
                                           {left, below - distance / 2}}};
    for (const auto& corner : corners) {
      places.push_back({corner.x, corner.y, corner.x + point.width, corner.y + height});
    }
  }
  return places;
}

Rectangle marker_box(const LabelledPoint& point) {
  return {point.at.x - point.radius, point.at.y - point.radius, point.at.x + point.radius,
          point.at.y + point.radius};
}

}  // namespace

std::vector<std::optional<Rectangle>> place_labels(const std::vector<LabelledPoint>& points,
                                                   const std::vector<std::vector<Position>>& lines,
                                                   const Rectangle& area, double height) {
  std::vector<Rectangle> taken;
  taken.reserve(points.size());
  for (const auto& point : points) taken.push_back(marker_box(point));
  std::vector<std::optional<Rectangle>> result(points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i].width <= 0) continue;
    for (const auto& place : places_around(points[i], height)) {
      const bool free = within(place, area) && std::none_of(taken.begin(), taken.end(), [&](const auto& box) {
                          return overlap(place, box);
                        });
      if (!free) continue;
      const bool clear = !crossed(place, lines) && unmistakable(place, points[i], points);
      if (clear || !result[i]) result[i] = place;
      if (clear) break;
    }
    if (result[i]) taken.push_back(*result[i]);
  }
  return result;
}

}  // namespace lockstep::plot
