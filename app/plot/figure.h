// What a picture shows, without how it is drawn: panels with axes, lines through points, bars, a legend.
// Plain data: plot's readers of files make it, tests compare it, paint.h puts it on a canvas.
#pragma once

#include <string>
#include <vector>

namespace lockstep::plot {

enum class Scale { kLinear, kLog };

struct Tick {
  double at = 0;
  std::string label = {};
};

struct Axis {
  std::string label = {};  // with its unit: "size (bytes)"
  Scale scale = Scale::kLinear;
  // At the left and right end, at the bottom and top. `low` above `high`: upside down.
  double low = 0;
  double high = 1;
  std::vector<Tick> ticks = {};
};

enum class Marker { kNone, kCircle, kSquare, kTriangle, kDiamond, kTriangleDown, kCross };
enum class Line { kNone, kSolid, kThin, kDashed };

// Colours are numbers into a palette that people with any colour vision can tell apart; kInk is the text's.
inline constexpr int kInk = -1;

struct Style {
  int color = 0;
  Marker marker = Marker::kNone;
  Line line = Line::kSolid;
  bool hollow = false;  // markers
  bool pale = false;    // nearer to the paper
};

struct Point {
  double x = 0;
  double y = 0;
  std::string label = {};  // beside the point, where there is room
};

struct Series {
  Style style = {};
  std::vector<Point> points = {};  // finite, in the order in which a line joins them
};

struct Bar {
  double begin = 0;
  double end = 0;
  int track = 0;  // from above; takes track .. track + 1 of the y axis
  int color = 0;
  std::string label = {};  // inside, where those of its whole track fit
};

struct Panel {
  std::string title = {};
  Axis x = {};
  Axis y = {};
  std::vector<Series> series = {};
  std::vector<Bar> bars = {};
  double height = 300;  // of the area within the axes, in pixels
};

struct LegendEntry {
  std::string text = {};
  Style style = {};
  bool bar = false;  // a filled rectangle instead of a line with a marker
};

struct Figure {
  std::string title = {};
  std::string subtitle = {};
  std::vector<Panel> panels = {};
  int columns = 1;  // of panels
  std::vector<LegendEntry> legend = {};
  std::string summary = {};  // one phrase: "bus bandwidth against size, 3 lines"
};

}  // namespace lockstep::plot
