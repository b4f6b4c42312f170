// The display of a run on a terminal while it trains: a line with a bar, and below it the curve of test
// accuracy.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/app/terminal/line_timer.h>
#include <lockstep/app/terminal/live_block.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/progress/live_line.h>
#include <lockstep/app/train/progress/report.h>

namespace lockstep {

// The curve as it is printed, too. Empty for a run of one epoch, before the first one has ended, and where
// `width` columns are too few.
std::string curve_text(std::span<const double> accuracy, int64_t epochs, int width, bool utf8);

// The line, and the curve from the second epoch's end on, for a terminal of this size. One column and one row
// stay free. No lines where there is no room for one.
std::vector<std::string> live_lines(const LiveFigures& figures, std::span<const double> accuracy, int width,
                                    int height, bool utf8, const Style& style);

// Draws from the training loop, at most about five times a second, and asks the terminal for its size each
// time. Not thread-safe.
class LiveRun {
 public:
  static constexpr double kBetweenDrawings = .2;  // seconds

  // terminal: standard error. group: of LiveBlock. Keeps a reference to the plan.
  LiveRun(const TrainPlan& plan, const Terminal& terminal, pid_t group, SecondsClock clock = steady_seconds);

  // Returns true if steps() would draw.
  bool due() const { return clock_() - drawn_at_ >= kBetweenDrawings; }

  // Training begins or goes on with this epoch (from 1). Draws.
  void begin(int64_t epoch, int64_t steps_done, std::span<const double> accuracy);

  // interval: what the epoch has trained so far, as of now, with the sums of its steps. steps_done: of the
  // run.
  void steps(const StepInterval& interval, int64_t steps_done);

  // The epoch's steps are done.
  void trained(const StepInterval& interval, int64_t steps_done);

  // Call it after each block of the evaluation.
  void evaluation(int64_t rows_done, int64_t rows);

  // The epoch's evaluation took so long.
  void evaluated(double seconds);

  void erase() { block_.erase(); }

 private:
  void set_steps(const StepInterval& interval, int64_t steps_done, double now);
  void set_left(double evaluations_of_epoch);
  void draw();

  const TrainPlan& plan_;
  const Terminal terminal_;
  const SecondsClock clock_;
  const bool utf8_;
  LiveBlock block_;
  double drawn_at_;
  LiveFigures figures_;
  std::vector<double> accuracy_;
  int64_t steps_left_;
  int64_t trained_steps_ = 0;  // of this program, in epochs before: what a step takes is their mean
  double trained_seconds_ = 0;
  double seconds_per_step_ = 0;        // 0: not known yet
  double evaluation_begin_ = 0;        // seconds of the clock
  double seconds_per_evaluation_ = 0;  // of the last one, or as the first one has gone so far
  bool evaluation_measured_ = false;
};

}  // namespace lockstep
