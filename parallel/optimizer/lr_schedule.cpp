#include <lockstep/parallel/optimizer/lr_schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep {

namespace {

// The factor on the base rate when the fraction `done` (0 to 1) of the steps after the warm-up is over.
double factor(Schedule schedule, double done) {
  switch (schedule) {
    case Schedule::kConstant:
      return 1;
    case Schedule::kCosine:
      return .5 * (1 + std::cos(std::numbers::pi * done));
    case Schedule::kStep:
      return done < .5 ? 1 : done < .75 ? .1 : .01;
  }
  return 1;
}

}  // namespace

double lr_at(const LrSchedule& schedule, int64_t step) {
  const auto part = [](int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); };
  if (step < schedule.warmup_steps) return schedule.lr * part(step + 1, schedule.warmup_steps);
  const auto remaining = schedule.total_steps - schedule.warmup_steps;
  if (remaining <= 0) return schedule.lr;
  const auto done = part(step - schedule.warmup_steps, remaining);
  return schedule.lr * factor(schedule.schedule, std::min(done, 1.));
}

}  // namespace lockstep
