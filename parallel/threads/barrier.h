// A barrier that an error can open.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

namespace lockstep {

// A reusable barrier for a fixed number of threads. Thread-safe. Contains no torch, so ThreadSanitizer can
// check it.
class Barrier {
 public:
  explicit Barrier(int parties) : parties_(parties) {}
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  // Returns when all parties have arrived; everything they wrote before is then visible to all. After abort()
  // it throws abort()'s error in every thread that waits or arrives later.
  void arrive_and_wait();

  // Opens the barrier for good with this error. Only the first call counts.
  void abort(std::exception_ptr error);

  // The error of the first abort(); null if there was none.
  std::exception_ptr error() const;

 private:
  const int parties_;
  mutable std::mutex mutex_;
  std::condition_variable opened_;
  int arrived_ = 0;
  uint64_t round_ = 0;
  std::exception_ptr error_;
};

}  // namespace lockstep
