// When somebody who watches a long piece of work is due a line about it.
#pragma once

#include <functional>

namespace lockstep {

// Seconds from any moment on; steady_seconds() for a real one.
using SecondsClock = std::function<double()>;

double steady_seconds();

// The first line is due kFirstLine seconds after start(), later ones kBetweenLines after the one before. A
// part of the work that has ended makes a line due when waiting for another part as long would make it late.
class LineTimer {
 public:
  static constexpr double kFirstLine = 3;
  static constexpr double kBetweenLines = 10;

  // Work goes on at this moment: nothing before it counts as a part's time. Until the first line, only the
  // first call starts the wait for it.
  void start(double now);

  // A part ends at this moment.
  bool due(double now);

  // A line was shown, due or not.
  void shown(double now);

 private:
  bool started_ = false;
  bool first_ = true;     // no line was shown yet
  double since_ = 0;      // the last line, or the start
  double part_from_ = 0;  // where the part under way began
};

}  // namespace lockstep
