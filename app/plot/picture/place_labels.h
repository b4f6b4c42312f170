// Places the labels of points such that they cover neither each other nor a marker.
#pragma once

#include <optional>
#include <vector>

#include <lockstep/app/plot/picture/canvas.h>

namespace lockstep::plot {

struct LabelledPoint {
  Position at = {};
  double radius = 0;  // of its marker
  double width = 0;   // of its label; 0: no label
};

// Returns a place for each point's label, or nothing if it has no label or there is no room. Places lie
// inside `area` and overlap neither markers nor each other. If possible they also avoid the lines and are
// nearer to their own marker than to any other.
std::vector<std::optional<Rectangle>> place_labels(const std::vector<LabelledPoint>& points,
                                                   const std::vector<std::vector<Position>>& lines,
                                                   const Rectangle& area, double height);

}  // namespace lockstep::plot
