#include <lockstep/parallel/step_graph.h>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>

namespace lockstep {
namespace {

// After a failure in the middle: the stream leaves its recording state, and the allocator the graph's memory.
// What these say is of no interest: the first error is.
void give_up(at::cuda::CUDAGraph& graph, c10::DeviceIndex device) {
  const auto quietly = [](const auto& action) {
    try {
      action();
    } catch (const std::exception&) {
    }
  };
  const auto pool = graph.pool();
  quietly([&] { graph.capture_end(); });
  quietly([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool); });
  quietly([&] { graph.reset(); });
  cudaGetLastError();  // or the next caller of the runtime is blamed for it
}

}  // namespace

struct StepGraph::Recorded {
  at::cuda::CUDAGraph graph;
};

bool StepGraph::available(torch::Device device) { return device.is_cuda(); }

StepGraph::StepGraph(const std::function<void()>& work, const StepGraph* neighbour)
    : recorded_(std::make_unique<Recorded>()) {
  auto& graph = recorded_->graph;
  // Thread-local: other replicas' threads, and NCCL's watch, go on asking and allocating meanwhile.
  graph.capture_begin(neighbour ? neighbour->recorded_->graph.pool() : c10::MempoolId_t{0, 0},
                      cudaStreamCaptureModeThreadLocal);
  try {
    work();
  } catch (...) {
    give_up(graph, c10::cuda::current_device());
    throw;
  }
  try {
    graph.capture_end();
  } catch (...) {
    give_up(graph, c10::cuda::current_device());
    throw;
  }
}

StepGraph::~StepGraph() = default;

void StepGraph::replay() { recorded_->graph.replay(); }

}  // namespace lockstep
