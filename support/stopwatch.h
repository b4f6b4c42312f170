// Measures the wall time of consecutive parts of a program.
#pragma once

#include <chrono>

namespace lockstep {

class Stopwatch {
 public:
  // Seconds since the last lap, or since construction.
  double lap() {
    const auto now = Clock::now();
    const std::chrono::duration<double> seconds = now - last_;
    last_ = now;
    return seconds.count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

}  // namespace lockstep
