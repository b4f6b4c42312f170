// Groups points into the lines of a picture and names the lines.
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/plot/picture/figure.h>

namespace lockstep::plot {

// The colour and marker of the i-th line. The first 42 are all different.
Style style_of_line(int i);

// The parts of a line's name, in the same order for all lines: {"run.jsonl", "[cpu, cpu]", "batch 256"}. A
// part may be empty.
using Parts = std::vector<std::string>;

struct Names {
  std::vector<std::string> own;  // per line: the parts in which lines differ, or all parts if none differ
  std::string common;            // the parts that all lines have in common
};

Names names_by_difference(const std::vector<Parts>& lines);

// Collects points into lines by their parts, in order of appearance.
class Lines {
 public:
  struct Line {
    Parts parts;
    std::vector<Point> points;
  };

  void add(Parts parts, Point point);
  void sort_by_x();  // stable

  const std::vector<Line>& lines() const { return lines_; }
  std::vector<Parts> parts() const;
  // The coordinates of all points.
  std::vector<double> xs() const { return coordinates(&Point::x); }
  std::vector<double> ys() const { return coordinates(&Point::y); }

 private:
  std::vector<double> coordinates(double Point::*axis) const;

  std::vector<Line> lines_;
};

// Adds the lines to the figure's first panel, a legend if there are several, their common parts as the
// subtitle, and the summary: "speed-up against replicas, 2 lines".
void add_lines(Figure& figure, const Lines& lines, const std::string& what);

}  // namespace lockstep::plot
