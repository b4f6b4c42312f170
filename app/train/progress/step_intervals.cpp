#include <lockstep/app/train/progress/step_intervals.h>

namespace lockstep {

void StepIntervals::begin(double now, const TrainProgress& progress) {
  epoch_ = printed_ = recorded_ = {.begin = now, .lr = progress.lr};
  epoch_.sums = progress.epoch_sums;
  printed_.sums = recorded_.sums = progress.recorded_sums;
}

void StepIntervals::add_step(int64_t rows, double lr) {
  for (auto* interval : {&epoch_, &printed_, &recorded_}) {
    interval->rows += rows;
    ++interval->steps;
    interval->lr = lr;
  }
}

void StepIntervals::add_sums(const TrainSums& sums) {
  for (auto* interval : {&epoch_, &printed_, &recorded_}) interval->sums += sums;
}

void StepIntervals::add_times(const StepTimes& times) {
  for (auto* interval : {&epoch_, &printed_, &recorded_}) interval->times += times;
}

void StepIntervals::leave_out_first_step(double now, bool has_line) {
  if (has_line) {  // its line has taken the times and begun the other intervals
    epoch_ = {.begin = now, .lr = epoch_.lr, .sums = epoch_.sums};
    return;
  }
  for (auto* interval : {&epoch_, &printed_, &recorded_}) {
    *interval = {.begin = now, .lr = interval->lr, .sums = interval->sums};
  }
}

StepReport StepIntervals::take(StepInterval& interval, double now) {
  auto report = report_of(interval, now);
  interval = {.begin = now};
  return report;
}

}  // namespace lockstep
