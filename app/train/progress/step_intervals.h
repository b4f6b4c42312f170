// The intervals that a run sums over: the steps of an epoch, and those since a step line.
#pragma once

#include <cstdint>

#include <lockstep/app/train/progress/progress.h>
#include <lockstep/app/train/progress/report.h>

namespace lockstep {

// `now`: in seconds of the run's clock.
class StepIntervals {
 public:
  // Begins an epoch, or goes on with one: with the sums of its steps before the break.
  void begin(double now, const TrainProgress& progress);

  void add_step(int64_t rows, double lr);
  void add_sums(const TrainSums& sums);
  void add_times(const StepTimes& times);

  // Takes the run's first step, which includes one-time work, out of the mean times. has_line: the step's own
  // line was taken, with its time.
  void leave_out_first_step(double now, bool has_line);

  // Return the means since the last call, or since begin(); epoch and step stay 0.
  StepReport take_printed(double now) { return take(printed_, now); }
  StepReport take_recorded(double now) { return take(recorded_, now); }

  const StepInterval& epoch() const { return epoch_; }
  const StepInterval& recorded() const { return recorded_; }

 private:
  static StepReport take(StepInterval& interval, double now);

  StepInterval epoch_;
  StepInterval printed_;   // since the last printed step line
  StepInterval recorded_;  // since the last step line of the metrics: one every --log-every steps
};

}  // namespace lockstep
