// The text of the line that a terminal shows while a run trains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/app/run_files/row_sums.h>
#include <lockstep/app/terminal/terminal.h>

namespace lockstep {

// Shares are from 0 to 1. An empty one is not known yet, and left out.
struct LiveFigures {
  int64_t epoch = 1;  // from 1
  int64_t epochs = 1;
  double done = 0;                               // share of the whole run's steps
  std::optional<double> evaluated = {};          // share of the evaluation under way
  std::optional<double> seconds_left = {};       // of the run
  std::optional<double> images_per_second = {};  // this and the sums: as the epoch's line will say
  std::string speed_unit = "rows/s";
  std::optional<RowSums> sums = {};  // of at least one row
};

// "epoch  3/10 ████████▌           41% | 2:13 left | 20,755 img/s | loss 0.5123 | top1 81.2%"
// During an evaluation "evaluating 34%" takes the place of the speed. The text has at most `width` columns;
// what has no room is left out, the speed first. `utf8`: eighths of blocks, else '#' and '.'.
std::string live_line(const LiveFigures& figures, size_t width, bool utf8, const Style& style);

// The work that is left of a run.
struct WorkLeft {
  int64_t steps = 0;
  double seconds_per_step = 0;
  double evaluations = 0;  // 1.5: one is half done, and one is to come
  double seconds_per_evaluation = 0;
};

double seconds_of(const WorkLeft& left);

// "0:07", "2:13", "1:02:03", "4 d 3 h".
std::string duration_text(double seconds);

}  // namespace lockstep
