#include <lockstep/app/train/progress/step_intervals.h>

#include <utility>

namespace lockstep {
namespace {

// Keeps sums and counts.
StepInterval without_times(const StepInterval& interval, double now) {
  return {.begin = now,
          .lr = interval.lr,
          .sums = interval.sums,
          .skipped = interval.skipped,
          .loss_scale = interval.loss_scale};
}

}  // namespace

void StepIntervals::begin(double now, const RunPosition& position) {
  epoch_begin_ = now - position.epoch_seconds;
  epoch_ = printed_ = recorded_ = {.begin = now, .lr = position.lr};
  epoch_.sums = position.epoch_sums;
  printed_.sums = recorded_.sums = position.recorded_sums;
  epoch_.skipped = position.epoch_skipped;
  printed_.skipped = recorded_.skipped = position.recorded_skipped;
}

void StepIntervals::add_step(int64_t rows, double lr) {
  for (auto* interval : {&epoch_, &printed_, &recorded_}) {
    interval->rows += rows;
    ++interval->steps;
    interval->lr = lr;
  }
}

void StepIntervals::add_sums(const RowSums& sums) {
  for (auto* interval : {&epoch_, &printed_, &recorded_}) interval->sums += sums;
}

void StepIntervals::add_times(const StepTimes& times) {
  for (auto* interval : {&epoch_, &printed_, &recorded_}) {
    if (!interval->times) interval->times.emplace();
    *interval->times += times;
  }
}

void StepIntervals::add_skipped(int64_t skipped, double loss_scale) {
  for (auto* interval : {&epoch_, &printed_, &recorded_}) {
    interval->skipped += skipped;
    interval->loss_scale = loss_scale;
  }
}

void StepIntervals::leave_out_first_step(double now, bool has_line) {
  if (has_line) {  // its line has taken the times and begun the other intervals
    epoch_ = without_times(epoch_, now);
    return;
  }
  for (auto* interval : {&epoch_, &printed_, &recorded_}) *interval = without_times(*interval, now);
}

void StepIntervals::add_to(RunPosition& position, double now) const {
  position.epoch_seconds = seconds_of_epoch(now);
  position.lr = epoch_.lr;
  position.epoch_sums = epoch_.sums;
  position.recorded_sums = recorded_.sums;
  position.epoch_skipped = epoch_.skipped;
  position.recorded_skipped = recorded_.skipped;
}

StepInterval StepIntervals::take(StepInterval& interval, double now) {
  interval.end = now;
  return std::exchange(interval, {.begin = now, .sums = zeros_like(interval.sums)});
}

}  // namespace lockstep
