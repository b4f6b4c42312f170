// Where the time of a step goes.
#pragma once

#include <chrono>

namespace lockstep {

// Seconds between the moments at which the slowest replica was done with each part. On GPUs work is only
// queued, so that there they say nothing but their sum.
struct StepTimes {
  double data = 0;     // gathering the rows
  double compute = 0;  // forward and backward
  double sync = 0;     // summing gradients over the replicas: what backward did not hide
  double update = 0;   // the optimizer

  StepTimes& operator+=(const StepTimes& other);
  StepTimes operator/(double steps) const;
};

// When one replica was done with each part of a step.
struct StepTimestamps {
  using Clock = std::chrono::steady_clock;
  Clock::time_point start{}, data{}, compute{}, sync{}, update{};
};

}  // namespace lockstep
