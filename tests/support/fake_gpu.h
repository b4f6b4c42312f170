// GPUs of the tests' own making, so that the order of work on streams can be tested where there is no GPU:
// devices of torch's PrivateUse1 type whose streams are threads that do what was queued, in order and in
// their own time. Memory is the host's; there are no kernels, so tensors are only good for their addresses.
#pragma once

#include <c10/core/Stream.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>

#include <lockstep/parallel/task_thread.h>

namespace lockstep::testing {

inline torch::Device fake_gpu(int index) {
  return {torch::kPrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

// What a stream's native handle points to.
struct FakeStream {
  TaskThread queue;
};

FakeStream& fake_stream(const c10::Stream& stream);

// Queues work on a stream and returns at once.
inline void launch(const c10::Stream& stream, std::function<void()> work) {
  fake_stream(stream).queue.post(std::move(work));
}

// A tensor on a fake GPU over this host tensor's memory, which it keeps alive.
torch::Tensor on_fake_gpu(const torch::Tensor& host, int index);

}  // namespace lockstep::testing
