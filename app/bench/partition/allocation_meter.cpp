#include <lockstep/app/bench/partition/allocation_meter.h>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <unordered_map>

namespace lockstep {

// Holds only blocks allocated since it was made, so freeing earlier blocks does not count.
class AllocationMeter::Ledger : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* block, int64_t bytes, size_t, size_t, c10::Device) override {
    if (bytes > 0) {
      live_[block] = bytes;
      live_bytes_ += bytes;
    } else if (const auto found = live_.find(block); found != live_.end()) {
      live_bytes_ -= found->second;
      live_.erase(found);
    }
  }

  bool memoryProfilingEnabled() const override { return true; }

  int64_t live_bytes() const { return live_bytes_; }

 private:
  std::unordered_map<void*, int64_t> live_;
  int64_t live_bytes_ = 0;
};

AllocationMeter::AllocationMeter()
    : ledger_(std::make_shared<Ledger>()),
      guard_(std::make_unique<c10::DebugInfoGuard>(c10::DebugInfoKind::PROFILER_STATE, ledger_)) {}

AllocationMeter::~AllocationMeter() = default;

int64_t AllocationMeter::live_bytes() const { return ledger_->live_bytes(); }

}  // namespace lockstep
