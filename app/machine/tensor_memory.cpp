#include <lockstep/app/machine/tensor_memory.h>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace lockstep {
namespace {

// Torch tells it of each allocation, as it tells its profiler.
class TensorMemory : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* memory, int64_t bytes, size_t /*allocated*/, size_t /*reserved*/,
                         c10::Device device) override {
    if (!device.is_cpu()) return;
    const std::lock_guard lock(mutex_);
    if (bytes > 0) {
      sizes_[memory] = bytes;
      held_ += bytes;
    } else if (const auto own = sizes_.extract(memory)) {
      held_ -= own.mapped();
    }
    peak_ = std::max(peak_, held_);
  }

  bool memoryProfilingEnabled() const override { return true; }

  int64_t peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<void*, int64_t> sizes_;
  int64_t held_ = 0, peak_ = 0;
};

}  // namespace

int64_t peak_tensor_bytes(const std::function<void()>& work) {
  const auto memory = std::make_shared<TensorMemory>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
  work();
  return memory->peak();
}

}  // namespace lockstep
