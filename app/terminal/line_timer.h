// Decides when to print a progress line.
#pragma once

#include <functional>

namespace lockstep {

// Returns seconds since some fixed moment, for example steady_seconds().
using SecondsClock = std::function<double()>;

double steady_seconds();

// The first line is due kFirstLine seconds after start(), each later one kBetweenLines seconds after the
// previous line. Lines can be printed only between two parts of the work. A line is therefore due early if it
// would be late after another part of the same length.
class LineTimer {
 public:
  static constexpr double kFirstLine = 3;
  static constexpr double kBetweenLines = 10;

  // The work starts, or goes on after a pause. Until the first line is printed, only the first call starts
  // the wait for it.
  void start(double now);

  // Call it at the end of each part. Returns whether to print a line now.
  bool due(double now);

  // Call it after each printed line.
  void shown(double now);

 private:
  bool started_ = false;
  bool first_ = true;     // no line has been printed yet
  double since_ = 0;      // time of the last line, or of the start
  double part_from_ = 0;  // start of the current part
};

}  // namespace lockstep
