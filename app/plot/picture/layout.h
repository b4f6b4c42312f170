// Computes where the parts of a figure lie in the picture, without overlaps.
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/plot/picture/canvas.h>
#include <lockstep/app/plot/picture/figure.h>

namespace lockstep::plot {

inline constexpr double kPictureWidth = 960;

inline constexpr Font kTitleFont{.size = 18, .bold = true};
inline constexpr Font kSubtitleFont{.size = 12};
inline constexpr Font kPanelFont{.size = 14, .bold = true};
inline constexpr Font kTextFont{.size = 12};

struct PanelPlace {
  Rectangle area = {};  // inside the axes
  double title = 0;     // base line of the panel's title
  double y_label = 0;   // base line of the y axis's label, which reads from bottom to top
};

struct LegendPlace {
  Position at;            // left end, middle of the line
  std::string text = {};  // shortened if it is too long
};

struct Layout {
  double width = kPictureWidth;
  double height = 0;
  std::string title = {};  // title and subtitle are shortened to the width
  std::string subtitle = {};
  double title_base = 0;
  double subtitle_base = 0;
  double left = 0;                      // left edge of all parts
  std::vector<PanelPlace> panels = {};  // in the figure's order
  std::vector<LegendPlace> legend = {};
};

inline constexpr double kLegendSample = 34;   // pixels of line before a legend's text
inline constexpr double kTickLabelDrop = 18;  // from the lower axis to the base line of its tick labels
inline constexpr double kAxisLabelDrop = 38;  // from the lower axis to the base line of its label

// `canvas` only measures texts.
Layout lay_out(const Figure& figure, Canvas& canvas);

// Returns the text, or if it is too wide its beginning and end with "..." between.
std::string shortened(const std::string& text, double width, Font font, Canvas& canvas);

// The position of a value on an axis whose low end is at `from` and whose high end is at `to`.
double place_on(const Axis& axis, double value, double from, double to);

}  // namespace lockstep::plot
