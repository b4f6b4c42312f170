// How much memory a thread's tensors take.
#pragma once

#include <cstdint>
#include <memory>

namespace c10 {
class DebugInfoGuard;
}

namespace lockstep {

// While it lives: bytes that the calling thread has allocated through torch, on any device, and has given
// back. One at a time in a thread, and not together with torch's profiler. It slows allocation
// down, and torch warns on stderr when a block from before is given back meanwhile, which does not count.
class AllocationMeter {
 public:
  AllocationMeter();
  ~AllocationMeter();
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;

  // Allocated since the meter was made, and not given back.
  int64_t live_bytes() const;

 private:
  class Ledger;
  std::shared_ptr<Ledger> ledger_;
  std::unique_ptr<c10::DebugInfoGuard> guard_;
};

}  // namespace lockstep
