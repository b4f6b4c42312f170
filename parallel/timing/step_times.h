// Where the time of a step goes.
#pragma once

#include <chrono>

namespace lockstep {

// Seconds until the slowest replica was done with each part of a step. On GPUs these are the times of
// queueing, unless ReplicaOptions::wait_for_device.
struct StepTimes {
  double data = 0;     // gathering the rows
  double compute = 0;  // forward and backward
  double sync = 0;     // waiting for the sums of gradients after backward
  double update = 0;   // the optimizer

  StepTimes& operator+=(const StepTimes& other);
  StepTimes operator/(double steps) const;
};

// When one replica was done with each part of a step.
struct StepTimestamps {
  using Clock = std::chrono::steady_clock;
  static Clock::time_point now() { return Clock::now(); }
  Clock::time_point start{}, data{}, compute{}, sync{}, update{};
};

}  // namespace lockstep
