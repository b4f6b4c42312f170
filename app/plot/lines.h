// The lines of a picture: which points belong together, and what each line is called.
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/plot/figure.h>

namespace lockstep::plot {

// The i-th line's colour and marker, all different for the first 42.
Style style_of_line(int i);

// What describes a line, in the same order for each: {"run.jsonl", "[cpu, cpu]", "batch 256"}. Empty:
// nothing.
using Parts = std::vector<std::string>;

struct Names {
  std::vector<std::string>
      own;             // a line: the parts in which it differs from others; all of them where none do
  std::string common;  // the parts that all lines share
};

Names names_by_difference(const std::vector<Parts>& lines);

// Points that share their parts, in order of appearance.
class Lines {
 public:
  struct Line {
    Parts parts;
    std::vector<Point> points;
  };

  void add(Parts parts, Point point);
  void sort_by_x();  // stably

  const std::vector<Line>& lines() const { return lines_; }
  std::vector<Parts> parts() const;
  // Of all points.
  std::vector<double> xs() const;
  std::vector<double> ys() const;

 private:
  std::vector<Line> lines_;
};

// Puts them into the figure's first panel: a legend where there are several, the subtitle from what they
// share.
void add_lines(Figure& figure, const Lines& lines);

}  // namespace lockstep::plot
