// Where the parts of a figure lie in the picture, so that none covers another.
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/plot/canvas.h>
#include <lockstep/app/plot/figure.h>

namespace lockstep::plot {

inline constexpr double kPictureWidth = 960;

inline constexpr Font kTitleFont{.size = 18, .bold = true};
inline constexpr Font kSubtitleFont{.size = 12};
inline constexpr Font kPanelFont{.size = 14, .bold = true};
inline constexpr Font kTextFont{.size = 12};

struct PanelPlace {
  Rectangle area = {};  // within the axes
  double title = 0;     // base line of the panel's title
  double y_label = 0;   // base line of the y axis's label, which reads upwards
};

struct LegendPlace {
  Position at;            // left end, middle of the line
  std::string text = {};  // shortened where it is too long
};

struct Layout {
  double width = kPictureWidth;
  double height = 0;
  std::string title = {};  // shortened to the width, as the subtitle
  std::string subtitle = {};
  double title_base = 0;
  double subtitle_base = 0;
  double left = 0;                      // of everything
  std::vector<PanelPlace> panels = {};  // as the figure has them
  std::vector<LegendPlace> legend = {};
};

inline constexpr double kLegendSample = 34;   // pixels of line before a legend's text
inline constexpr double kTickLabelDrop = 18;  // from the lower axis down to its labels' base line
inline constexpr double kAxisLabelDrop = 38;  // ... and to the axis's own label's

// `canvas` measures texts, and gets nothing drawn.
Layout lay_out(const Figure& figure, Canvas& canvas);

// The text, or its beginning and end with "..." between, whichever fits.
std::string shortened(const std::string& text, double width, Font font, Canvas& canvas);

// Where the axis puts this value, from `from` (its low end) to `to`.
double place_on(const Axis& axis, double value, double from, double to);

}  // namespace lockstep::plot
