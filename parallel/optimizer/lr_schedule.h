// Learning-rate schedules.
#pragma once

#include <cstdint>

#include <lockstep/support/choices.h>

namespace lockstep {

enum class Schedule {
  kConstant,
  kCosine,  // half a cosine from the base rate down to 0 (I. Loshchilov and F. Hutter, "SGDR", 2017, without
            // restarts)
  kStep,    // a tenth after half of the steps, a hundredth after three quarters (K. He et al., "Deep Residual
            // Learning", 2016)
};

inline constexpr Choice<Schedule> kScheduleNames[] = {
    {"constant", Schedule::kConstant}, {"cosine", Schedule::kCosine}, {"step", Schedule::kStep}};

struct LrSchedule {
  Schedule schedule = Schedule::kConstant;
  double lr = .1;           // the base rate
  int64_t total_steps = 1;  // steps of the run
  int64_t warmup_steps =
      0;  // steps in which the rate rises linearly to the base rate (P. Goyal et al., 2017)
};

// The learning rate of step 0 .. total_steps - 1. During warm-up it is lr (step + 1) / warmup_steps; the
// schedule spans the remaining steps. Later steps have the rate at which it ends: 0 for kCosine.
double lr_at(const LrSchedule& schedule, int64_t step);

}  // namespace lockstep
