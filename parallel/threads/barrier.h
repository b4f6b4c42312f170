// A barrier that a failure can open.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

namespace lockstep {

// For a fixed number of threads that meet again and again. No torch in here, so that ThreadSanitizer can
// watch it.
class Barrier {
 public:
  explicit Barrier(int parties) : parties_(parties) {}
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  // Returns when all parties have arrived: what each wrote before is then visible to all. Throws the error
  // that abort() was given, to those who wait and to everyone who arrives from then on.
  void arrive_and_wait();

  // Opens the barrier for good; the first error counts. From any thread, any number of times.
  void abort(std::exception_ptr error);

  // What abort() was given first; null while it was not called.
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
