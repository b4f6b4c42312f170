// Where the labels of points go, so that they cover neither each other nor a marker.
#pragma once

#include <optional>
#include <vector>

#include <lockstep/app/plot/canvas.h>

namespace lockstep::plot {

struct LabelledPoint {
  Position at = {};
  double radius = 0;  // of its marker
  double width = 0;   // of its label; 0: it has none
};

// A place for each point's label; nothing for those without a label, and for those that find no room. Within
// `area`, clear of all markers and of each other; where that is possible also clear of the lines, and nearer
// to its own marker than to any other.
std::vector<std::optional<Rectangle>> place_labels(const std::vector<LabelledPoint>& points,
                                                   const std::vector<std::vector<Position>>& lines,
                                                   const Rectangle& area, double height);

}  // namespace lockstep::plot
