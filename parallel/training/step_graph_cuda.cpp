#include <lockstep/parallel/training/step_graph.h>

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

// Held while a GPU's graphs are captured, queued or destroyed: each of these writes the state of torch's
// random generator of that GPU, which all its graphs share, and torch 2.11 has no lock for it.
std::mutex& mutex_of(c10::DeviceIndex device) {
  static std::array<std::mutex, 128> mutexes;  // torch's own bound is lower
  return mutexes.at(static_cast<size_t>(device));
}

// What this says of a capture that has failed is of no interest: the first error is.
template <class Action>
bool succeeds(const Action& action) {
  try {
    action();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// torch 2.11 leaves a failed capture's generator in the state in which random numbers are for graphs alone; a
// capture that succeeds ends it. It holds something, since torch warns of empty ones.
void reset_generator(c10::DeviceIndex device) {
  CUDAGraph graph;
  succeeds([&] {
    graph.capture_begin(at::cuda::graph_pool_handle(), cudaStreamCaptureModeThreadLocal);
    succeeds([&] { torch::zeros({1}, torch::Device(torch::kCUDA, device)); });
    graph.capture_end();
  });
}

// After a failure in the middle: the stream can be used as before, and the pool's memory be given back. torch
// 2.15 closes the pool when a capture ends badly and releases it in reset(); 2.11 does neither.
void give_up(CUDAGraph& graph, c10::DeviceIndex device, c10::MempoolId_t pool) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  succeeds([&] { graph.capture_end(); });
  const bool still_open = succeeds([&] { allocator::endAllocateToPool(device, pool); });
  succeeds([&] { graph.reset(); });
  if (still_open) {
    succeeds([&] { allocator::releasePool(device, pool); });
    if (auto* pinned = at::getHostAllocator(torch::kCUDA)) {  // or it would go on asking the graph
      succeeds([&] { pinned->end_allocate_to_pool(pool); });
      succeeds([&] { pinned->release_pool(pool); });
    }
    reset_generator(device);
  }
  static_cast<void>(cudaGetLastError());  // or the next caller of the runtime is blamed for it
}

}  // namespace

struct StepGraph::Recorded {
  explicit Recorded(const Recorded* neighbour)
      : pool(neighbour ? neighbour->pool : at::cuda::graph_pool_handle()) {}

  const c10::DeviceIndex device = c10::cuda::current_device();
  const c10::MempoolId_t pool;  // a graph does not tell its own while it is captured
  CUDAGraph graph;
};

bool StepGraph::available(torch::Device device) { return !device.is_cpu(); }

StepGraph::StepGraph(const std::function<void()>& work, const StepGraph* neighbour)
    : recorded_(std::make_unique<Recorded>(neighbour ? neighbour->recorded_.get() : nullptr)) {
  auto& [device, pool, graph] = *recorded_;
  const std::lock_guard lock(mutex_of(device));
  try {
    // Thread-local: other replicas' threads, and NCCL's watch, go on asking and allocating meanwhile.
    graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    work();
    graph.capture_end();
  } catch (...) {
    give_up(graph, device, pool);
    recorded_.reset();  // while the lock is held
    throw;
  }
}

StepGraph::~StepGraph() {
  const std::lock_guard lock(mutex_of(recorded_->device));
  recorded_.reset();
}

void StepGraph::replay() {
  const std::lock_guard lock(mutex_of(recorded_->device));
  recorded_->graph.replay();
}

}  // namespace lockstep
