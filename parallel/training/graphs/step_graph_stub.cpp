// The twin of step_graph_cuda.cpp for a build without CUDA.
#include <lockstep/parallel/training/graphs/step_graph.h>

#include <lockstep/support/error.h>

namespace lockstep {

struct StepGraph::Captured {};

bool StepGraph::available(torch::Device) { return false; }

StepGraph::StepGraph(const std::function<void()>&, const StepGraph*) {
  throw DeviceError("this lockstep was built without CUDA, which its graphs need",
                    "build with LOCKSTEP_BUILD_CUDA=on");
}

StepGraph::~StepGraph() = default;
void StepGraph::replay() {}

}  // namespace lockstep
