// Work of a GPU that is captured once and then replayed by one call of the host, instead of one call per
// kernel. (CUDA graphs: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-graphs)
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace lockstep {

// A replay reads and writes the memory that was used at capture. So all that changes from step to step must
// be in tensors that stay in place, and the work must not wait for the GPU. Not thread-safe: use it from one
// thread, whose current stream is not the default one.
class StepGraph {
 public:
  // Returns true if work on this device can be captured; always false in a build without CUDA.
  static bool available(torch::Device device);

  // Runs work() and captures what it queues on the current stream; the GPU does not run it. Memory allocated
  // meanwhile belongs to the graph. Graphs that are replayed one after the other may share one memory pool:
  // `shares_pool_with` names such a graph. Throws what work() throws, and c10::Error when CUDA cannot capture
  // something. The stream can be used after an error.
  explicit StepGraph(const std::function<void()>& work, const StepGraph* shares_pool_with = nullptr);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Queues the captured work on the current stream.
  void replay();

 private:
  struct Captured;
  std::unique_ptr<Captured> captured_;
};

}  // namespace lockstep
