// Measures the memory of a thread's tensors.
#pragma once

#include <cstdint>
#include <memory>

namespace c10 {
class DebugInfoGuard;
}

namespace lockstep {

// Counts the bytes that the calling thread allocates and frees through torch, on any device, while the meter
// lives. One meter per thread at a time, and not with torch's profiler. It slows allocation down. Freeing an
// earlier block does not count, but torch warns about it on stderr.
class AllocationMeter {
 public:
  AllocationMeter();
  ~AllocationMeter();
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;

  // Bytes allocated since the meter was made and not freed.
  int64_t live_bytes() const;

 private:
  class Ledger;
  std::shared_ptr<Ledger> ledger_;
  std::unique_ptr<c10::DebugInfoGuard> guard_;
};

}  // namespace lockstep
