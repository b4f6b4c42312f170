#include <lockstep/tests/parallel/training/graphs/fake_torch_cuda/fake_torch_cuda.h>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>

#include <array>
#include <map>
#include <mutex>
#include <stdexcept>

#include <lockstep/support/cuda/stream.h>
#include <lockstep/tests/support/fake_gpu/fake_gpu.h>

using lockstep::testing::fake_gpu;
using lockstep::testing::fake_stream;
using lockstep::testing::fake_torch_cuda;

namespace lockstep::testing {

FakeTorchCuda& fake_torch_cuda() {
  static FakeTorchCuda all;
  return all;
}

}  // namespace lockstep::testing

namespace {

struct Pools {
  std::mutex mutex;
  std::map<std::pair<int, c10::MempoolId_t>, int> open, uses;
};

Pools& pools() {
  static Pools all;
  return all;
}

// From the begin of a capture to its end one thread uses the GPU's generator. Counts races of two threads.
std::array<std::atomic<int>, 8> at_generator{};

struct AtGenerator {
  explicit AtGenerator(int device) : users(at_generator[static_cast<size_t>(device)]) {
    if (users++ != 0) ++fake_torch_cuda().races;
  }
  ~AtGenerator() { --users; }
  std::atomic<int>& users;
};

}  // namespace

int cudaGetLastError() { return fake_torch_cuda().unasked_errors.exchange(0); }

c10::DeviceIndex c10::cuda::current_device() {
  return c10::impl::VirtualGuardImpl(torch::kPrivateUse1).getDevice().index();
}

void c10::cuda::CUDACachingAllocator::endAllocateToPool(DeviceIndex device, MempoolId_t pool) {
  const std::lock_guard lock(pools().mutex);
  if (pools().open.erase({device, pool}) == 0)
    throw std::runtime_error("not currently recording to mempool_id");
  --fake_torch_cuda().open_pools;
}

void c10::cuda::CUDACachingAllocator::releasePool(DeviceIndex device, MempoolId_t pool) {
  const std::lock_guard lock(pools().mutex);
  auto& uses = pools().uses[{device, pool}];
  if (uses == 0) throw std::runtime_error("a pool was released more often than used");
  --uses;
  --fake_torch_cuda().used_pools;
}

namespace at::cuda {

c10::MempoolId_t graph_pool_handle() {
  static std::atomic<c10::CaptureId_t> made = 0;
  return {0, ++made};
}

void CUDAGraph::capture_begin(c10::MempoolId_t pool, cudaStreamCaptureMode mode) {
  if (mode != cudaStreamCaptureModeThreadLocal) throw std::runtime_error("the fake GPUs know one mode alone");
  const auto device = c10::cuda::current_device();
  stream_ = lockstep::current_stream(fake_gpu(device));
  pool_ = pool.first == 0 && pool.second == 0 ? graph_pool_handle() : pool;
  if (at_generator[static_cast<size_t>(device)]++ != 0) ++fake_torch_cuda().races;
  fake_torch_cuda().generator_captures = true;
  ++fake_torch_cuda().generator_users;
  registered_ = at_generator_ = true;
  {
    const std::lock_guard lock(pools().mutex);
    if (pools().open[{device, pool_}]++ != 0) throw std::runtime_error("already recording to mempool_id");
    ++pools().uses[{device, pool_}];
    ++fake_torch_cuda().open_pools;
    ++fake_torch_cuda().used_pools;
  }
  capturing_ = allocated_pool_ = true;
  stream_begin_capture(fake_stream(*stream_));
}

void CUDAGraph::capture_end() {
  if (!stream_) throw std::runtime_error("capture_end() called before capture_begin()");
  if (std::exchange(at_generator_, false)) --at_generator[static_cast<size_t>(stream_->device_index())];
  const auto end_pool = [&] {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(stream_->device_index(), pool_);
    capturing_ = false;
  };
  try {
    graph_ = stream_end_capture(fake_stream(*stream_));
  } catch (...) {
    ++fake_torch_cuda().unasked_errors;
    if (fake_torch_cuda().tidies_up) {
      fake_torch_cuda().generator_captures = false;
      end_pool();
    }
    throw;
  }
  end_pool();
  fake_torch_cuda().generator_captures = false;
  ++fake_torch_cuda().captures;
}

void CUDAGraph::replay() {
  if (!graph_) throw std::runtime_error("replay() without a preceding successful capture");
  const AtGenerator here(stream_->device_index());
  ++fake_torch_cuda().replays;
  graph_launch(graph_, fake_stream(lockstep::current_stream(stream_->device())));
}

c10::MempoolId_t CUDAGraph::pool() {
  if (!graph_) throw std::runtime_error("Called CUDAGraph::pool() without a preceding successful capture.");
  return pool_;
}

void CUDAGraph::reset() {
  if (!allocated_pool_ || (!graph_ && !fake_torch_cuda().tidies_up)) return;
  if (capturing_) c10::cuda::CUDACachingAllocator::endAllocateToPool(stream_->device_index(), pool_);
  capturing_ = allocated_pool_ = false;
  graph_.reset();
  c10::cuda::CUDACachingAllocator::releasePool(stream_->device_index(), pool_);
}

CUDAGraph::~CUDAGraph() {
  if (registered_) {
    const AtGenerator here(stream_->device_index());
    --fake_torch_cuda().generator_users;
  }
  try {
    reset();
  } catch (const std::exception&) {
  }
}

}  // namespace at::cuda
