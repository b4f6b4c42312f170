// Threads in a test: how many this process has, and how many torch's operations and ours share work among.
#pragma once

#include <ATen/Parallel.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <thread>

namespace lockstep::testing {

inline std::ptrdiff_t thread_count() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

// The number of threads once it has come down to `expected`, or what it still is after a long time: a thread
// that has been joined is listed for a moment longer.
inline std::ptrdiff_t thread_count_down_to(std::ptrdiff_t expected) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (thread_count() > expected && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return thread_count();
}

// The calling thread's number of threads for operations, while it lives.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  const int before_;
};

}  // namespace lockstep::testing
