#include <lockstep/tests/parallel/training/graphs/fake_step_graph.h>

#include <lockstep/parallel/training/graphs/step_graph.h>

#include <stdexcept>

namespace lockstep {

struct StepGraph::Captured {
  std::function<void()> work;
};

bool StepGraph::available(torch::Device) { return testing::fake_step_graphs().available; }

StepGraph::StepGraph(const std::function<void()>& work, const StepGraph*)
    : captured_(std::make_unique<Captured>(Captured{work})) {
  auto& graphs = testing::fake_step_graphs();
  if (!graphs.refuses.empty()) throw std::runtime_error(graphs.refuses);
  if (graphs.runs_at_capture) work();
  ++graphs.captured;
}

StepGraph::~StepGraph() = default;

void StepGraph::replay() {
  ++testing::fake_step_graphs().replayed;
  captured_->work();
}

namespace testing {

FakeStepGraphs& fake_step_graphs() {
  static FakeStepGraphs graphs;
  return graphs;
}

}  // namespace testing
}  // namespace lockstep
