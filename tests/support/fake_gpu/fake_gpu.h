// Fake GPUs, so that the order of work on streams can be tested without a GPU:
// devices of torch's PrivateUse1 type with the streams of fake_stream.h. Their memory is host memory. Without
// fake_gpu_kernels.cpp there are no kernels, and tensors are only useful for their addresses.
#pragma once

#include <c10/core/Stream.h>
#include <torch/types.h>

#include <functional>
#include <utility>

#include <lockstep/tests/support/fake_gpu/fake_stream.h>

namespace lockstep::testing {

inline torch::Device fake_gpu(int index) {
  return {torch::kPrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

FakeStream& fake_stream(const c10::Stream& stream);

// Queues work on a stream and returns at once.
inline void launch(const c10::Stream& stream, std::function<void()> work) {
  launch(fake_stream(stream), std::move(work));
}

// A tensor on a fake GPU over this host tensor's memory, which it keeps alive.
torch::Tensor on_fake_gpu(const torch::Tensor& host, int index);

}  // namespace lockstep::testing
