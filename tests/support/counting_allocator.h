// Counts what torch allocates.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep::testing {

// While it lives it counts the bytes of tensors in host memory, of all threads. One at a time.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : inner_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~CountingAllocator() override { c10::SetCPUAllocator(inner_, kPriority); }

  c10::DataPtr allocate(size_t n) override {
    auto* const block = new Block{inner_->allocate(n), n};
    live_ += static_cast<int64_t>(n);
    for (auto most = most_.load(); most < live_ && !most_.compare_exchange_weak(most, live_);) {
    }
    return {block->data.get(), block, release, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  static int64_t live() { return live_; }
  static int64_t most() { return most_; }
  static void forget_most() { most_ = live_.load(); }

 private:
  struct Block {
    c10::DataPtr data;
    size_t size;
  };
  static void release(void* context) {
    auto* const block = static_cast<Block*>(context);
    live_ -= static_cast<int64_t>(block->size);
    delete block;
  }

  static constexpr uint8_t kPriority = 255;
  static inline std::atomic<int64_t> live_ = 0, most_ = 0;
  c10::Allocator* const inner_;
};

}  // namespace lockstep::testing
