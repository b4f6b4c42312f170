// Thread counts: of this process, and of parallel operations.
#pragma once

#include <ATen/Parallel.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <thread>

namespace lockstep::testing {

// Threads of the process. Torch has a pool of its own, which becomes as large as the last thread that sets
// its number of threads wants: as large as this thread's from here on.
inline std::ptrdiff_t thread_count() {
  at::set_num_threads(at::get_num_threads());
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

// Waits until the process has at most `expected` threads, or half a minute; returns their number. A thread
// that has been joined is still listed for a moment.
inline std::ptrdiff_t thread_count_down_to(std::ptrdiff_t expected) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (thread_count() > expected && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return thread_count();
}

// Sets the calling thread's number of intra-op threads while it lives.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  const int before_;
};

}  // namespace lockstep::testing
