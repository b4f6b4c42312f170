// The contents of a picture: panels with axes, lines through points, bars, a legend. Plain data: made from
// files (figures.h), compared by tests, drawn by paint.h.
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
  // The values at the left and right end, or at the bottom and top. `low` above `high`: upside down.
  double low = 0;
  double high = 1;
  std::vector<Tick> ticks = {};
};

enum class Marker { kNone, kCircle, kSquare, kTriangle, kDiamond, kTriangleDown, kCross };
enum class Line { kNone, kSolid, kThin, kDashed };

// Colours are indices into the palette of color_of(). kInk is the colour of text.
inline constexpr int kInk = -1;

struct Style {
  int color = 0;
  Marker marker = Marker::kNone;
  Line line = Line::kSolid;
  bool hollow = false;  // markers
  bool pale = false;    // lighter
};

struct Point {
  double x = 0;
  double y = 0;
  std::string label = {};  // beside the point, if there is room
};

struct Series {
  Style style = {};
  std::vector<Point> points = {};  // finite, in the order in which a line joins them
};

struct Bar {
  double begin = 0;
  double end = 0;
  int track = 0;  // 0 at the top; covers track .. track + 1 of the y axis
  int color = 0;
  std::string label = {};  // inside the bar, if all labels of its track fit
};

// A square of a matrix, by its column from the left and its row of the y axis, each from 0.
struct Cell {
  int column = 0;
  int row = 0;
  double share = 0;        // how dark it is, 0 .. 1
  std::string label = {};  // inside the cell, if the labels of all cells fit
};

struct Panel {
  std::string title = {};
  Axis x = {};
  Axis y = {};
  std::vector<Series> series = {};
  std::vector<Bar> bars = {};
  std::vector<Cell> cells = {};
  double height = 300;  // of the area inside the axes, in pixels
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
  std::string summary = {};  // a phrase such as "bus bandwidth against size, 3 lines"
};

}  // namespace lockstep::plot
