#include <lockstep/parallel/training/graphs/step_graph.h>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>

#include <array>
#include <exception>
#include <mutex>

namespace lockstep {
namespace {

using at::cuda::CUDAGraph;

// Held while a GPU's graphs are captured, queued or destroyed. Each of these changes the state of torch's
// random generator of that GPU, which all its graphs share. torch 2.11 does not lock it.
std::mutex& mutex_of(c10::DeviceIndex device) {
  static std::array<std::mutex, 128> mutexes;  // torch's own bound is lower
  return mutexes.at(static_cast<size_t>(device));
}

// For cleaning up after an error: returns false when the action throws, since the first error is reported.
template <class Action>
bool succeeds(const Action& action) {
  try {
    action();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// After a failed capture, torch 2.11 leaves the generator in capture mode. A capture that succeeds ends that.
// It captures one kernel, since torch warns of empty graphs.
void reset_generator(c10::DeviceIndex device) {
  CUDAGraph graph;
  succeeds([&] {
    graph.capture_begin(at::cuda::graph_pool_handle(), cudaStreamCaptureModeThreadLocal);
    succeeds([&] { torch::zeros({1}, torch::Device(torch::kCUDA, device)); });
    graph.capture_end();
  });
}

// Ends a failed capture, so that the stream can be used again, and frees the pool's memory. torch 2.15 closes
// the pool when a capture fails and releases it in reset(); 2.11 does neither.
void give_up(CUDAGraph& graph, c10::DeviceIndex device, c10::MempoolId_t pool) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  succeeds([&] { graph.capture_end(); });
  const bool still_open = succeeds([&] { allocator::endAllocateToPool(device, pool); });
  succeeds([&] { graph.reset(); });
  if (still_open) {
    succeeds([&] { allocator::releasePool(device, pool); });
    if (auto* pinned = at::getHostAllocator(torch::kCUDA)) {  // otherwise it would still refer to the graph
      succeeds([&] { pinned->end_allocate_to_pool(pool); });
      succeeds([&] { pinned->release_pool(pool); });
    }
    reset_generator(device);
  }
  static_cast<void>(cudaGetLastError());  // otherwise the next CUDA call reports this error
}

}  // namespace

struct StepGraph::Captured {
  explicit Captured(const Captured* shares_pool_with)
      : pool(shares_pool_with ? shares_pool_with->pool : at::cuda::graph_pool_handle()) {}

  const c10::DeviceIndex device = c10::cuda::current_device();
  const c10::MempoolId_t pool;  // a graph does not return its pool during capture
  CUDAGraph graph;
};

bool StepGraph::available(torch::Device device) { return !device.is_cpu(); }

StepGraph::StepGraph(const std::function<void()>& work, const StepGraph* shares_pool_with)
    : captured_(std::make_unique<Captured>(shares_pool_with ? shares_pool_with->captured_.get() : nullptr)) {
  auto& [device, pool, graph] = *captured_;
  const std::lock_guard lock(mutex_of(device));
  try {
    // Thread-local: meanwhile other replicas' threads and NCCL's watch may query and allocate.
    graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    work();
    graph.capture_end();
  } catch (...) {
    give_up(graph, device, pool);
    captured_.reset();  // while the lock is held
    throw;
  }
}

StepGraph::~StepGraph() {
  const std::lock_guard lock(mutex_of(captured_->device));
  captured_.reset();
}

void StepGraph::replay() {
  const std::lock_guard lock(mutex_of(captured_->device));
  captured_->graph.replay();
}

}  // namespace lockstep
