// Work of a GPU that is recorded once and then replayed as a whole: the host's share of a step of many small
// kernels shrinks to one call. (CUDA graphs:
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-graphs)
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include <lockstep/support/choices.h>

namespace lockstep {

// Whether a GPU's steps are recorded and replayed.
enum class CudaGraph {
  kAuto,  // where it can be done
  kOn,    // an error where it cannot
  kOff,
};

inline constexpr Choice<CudaGraph> kCudaGraphNames[] = {
    {"auto", CudaGraph::kAuto}, {"on", CudaGraph::kOn}, {"off", CudaGraph::kOff}};

// What is replayed reads and writes the very memory of the recording: whatever changes from step to step is
// in tensors that stay where they are, and nothing in it may wait for the GPU. Used from one thread, whose
// current stream is not the default one.
class StepGraph {
 public:
  // Whether work on this device can be recorded; never in a build without CUDA.
  static bool available(torch::Device device);

  // Runs work(), and keeps what it queues on the current stream instead of running that. Memory that is
  // allocated meanwhile stays the graph's; with `neighbour` both have it in common, for graphs that are
  // replayed one after the other. Throws what work() throws, and c10::Error where CUDA cannot record
  // something; the stream can be used as before.
  explicit StepGraph(const std::function<void()>& work, const StepGraph* neighbour = nullptr);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Queues all of it on the current stream.
  void replay();

 private:
  struct Recorded;
  std::unique_ptr<Recorded> recorded_;
};

}  // namespace lockstep
