// Waiting for what other processes do, for tests.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace lockstep::testing {

// Waits up to a minute. Returns whether `done` became true.
inline bool wait_until(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Returns true if the process runs. One that has ended may stay as a zombie where nobody waits for orphans.
inline bool is_running(pid_t pid) {
  std::string text;
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  if (!std::getline(stat, text)) return false;
  const auto state = text.at(text.rfind(')') + 2);
  return state != 'Z' && state != 'X';
}

}  // namespace lockstep::testing
