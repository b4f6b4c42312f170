// The intervals that a run sums over: the steps of an epoch, and those since a step line.
#pragma once

#include <cstdint>

#include <lockstep/app/train/progress/report.h>
#include <lockstep/app/train/progress/run_position.h>

namespace lockstep {

// `now`: in seconds of the run's clock.
class StepIntervals {
 public:
  // Begins an epoch, or goes on with one: with the sums of its steps before the break.
  void begin(double now, const RunPosition& position);

  void add_step(int64_t rows, double lr);
  void add_sums(const RowSums& sums);
  void add_times(const StepTimes& times);

  // In fp16: steps of those summed were skipped, and the next one's loss scale is this.
  void add_skipped(int64_t skipped, double loss_scale);

  // Takes the run's first step, which includes one-time work, out of the mean times. has_line: the step's own
  // line was taken, with its time.
  void leave_out_first_step(double now, bool has_line);

  // Return what was summed since the last call, or since begin().
  StepInterval take_printed(double now) { return take(printed_, now); }
  StepInterval take_recorded(double now) { return take(recorded_, now); }

  // Adds the epoch's sums and time to its position, so that begin() goes on from there.
  void add_to(RunPosition& position, double now) const;

  // The seconds of the epoch's training, as if it had had no break.
  double seconds_of_epoch(double now) const { return now - epoch_begin_; }

  const StepInterval& epoch() const { return epoch_; }

 private:
  static StepInterval take(StepInterval& interval, double now);

  double epoch_begin_ = 0;
  StepInterval epoch_;
  StepInterval printed_;   // since the last printed step line
  StepInterval recorded_;  // since the last step line of the metrics: one every --log-every steps
};

}  // namespace lockstep
