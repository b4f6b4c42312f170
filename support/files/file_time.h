// The time of a file's last change as a number.
#pragma once

#include <ctime>

#include <cstdint>

namespace lockstep {

// Nanoseconds since 1970.
inline int64_t nanoseconds(const timespec& time) {
  constexpr int64_t kPerSecond = 1'000'000'000;
  return int64_t{time.tv_sec} * kPerSecond + time.tv_nsec;
}

}  // namespace lockstep
