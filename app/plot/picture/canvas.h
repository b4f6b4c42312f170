// The interface that pictures are drawn with. Lengths are pixels from the upper left corner.
#pragma once

#include <span>
#include <string>

#include <lockstep/app/plot/picture/figure.h>

namespace lockstep::plot {

struct Position {
  double x = 0;
  double y = 0;
};

struct Rectangle {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;

  double width() const { return right - left; }
  double height() const { return bottom - top; }
};

struct Color {
  double red = 0;  // 0 .. 1
  double green = 0;
  double blue = 0;
};

struct Stroke {
  Color color = {};
  double width = 1;
  bool dashed = false;
};

struct Font {
  double size = 12;
  bool bold = false;
};

enum class Align { kLeft, kCenter, kRight };

struct Text {
  std::string text = {};
  Position at = {};  // on the base line: its left end, middle or right end
  Font font = {};
  Align align = Align::kLeft;
  bool upwards = false;  // rotated to read from bottom to top
  Color color = {};
};

class Canvas {
 public:
  virtual ~Canvas() = default;

  virtual double text_width(const std::string& text, Font font) = 0;
  virtual void text(const Text& text) = 0;
  virtual void line(std::span<const Position> points, const Stroke& stroke) = 0;
  virtual void rectangle(const Rectangle& area, Color fill) = 0;
  // About 2 x `radius` wide. Hollow: an outline in `color` filled with the paper's colour.
  virtual void marker(Marker marker, Position at, double radius, Color color, bool hollow) = 0;
};

}  // namespace lockstep::plot
