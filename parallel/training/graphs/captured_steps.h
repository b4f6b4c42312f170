// Steps of a replica on a GPU, captured as CUDA graphs. The first steps of each shape run kernel by kernel.
// Then one is captured, and the later steps of this shape are replayed.
#pragma once

#include <c10/core/Device.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/parallel/timing/step_times.h>
#include <lockstep/parallel/training/graphs/step_graph.h>
#include <lockstep/parallel/training/replica_options.h>
#include <lockstep/support/notice.h>
#include <lockstep/support/types.h>

namespace lockstep {

// The state that steps with the same numbers of rows share. The tensors stay in place, so that a captured
// step can be replayed on them.
struct StepShape {
  int64_t batch_rows = 0;           // of the global batch
  std::vector<torch::Tensor> rows;  // row numbers on the device, one tensor per micro-batch
  std::vector<Batch> inputs;        // one per micro-batch
  int64_t epoch = 0;                // of this step's rows
  // If the model has a weight: (micro-batches + 1) double on the device, each one's and the sum over all
  // replicas.
  torch::Tensor weights;
  torch::Tensor loss_gradient;  // (), of the loss's dtype: 1 / batch_rows, with which backward begins

  // For CapturedSteps alone.
  int eager_steps = 0;
  std::unique_ptr<StepGraph> graph;  // of StepParts::compute
};

// The parts of a step. compute and update are captured: they must not wait for the GPU or post a collective.
struct StepParts {
  std::function<void(StepShape&)> gather;   // before each replay; empty: compute gathers
  std::function<void(StepShape&)> compute;  // gather, forward and backward; of a lone replica update as well
  std::function<void()> sync;               // sums the gradients over the replicas
  std::function<void()> update;
  std::function<void()> fetch;  // after it: gets what other replicas have updated; may be empty
};

struct CaptureOptions {
  torch::Device device = torch::kCPU;
  std::shared_ptr<const BatchSpec> batches;  // what a StepShape's inputs hold
  CudaGraph mode = CudaGraph::kOff;
  bool alone = true;  // there is no other replica and no hook: compute does all
  Notice notice;      // told when a step cannot be captured; may be empty
};

// Not thread-safe. Call it from the replica's thread.
class CapturedSteps {
 public:
  CapturedSteps(CaptureOptions options, StepParts parts);

  // Returns true if steps will be captured, or have been.
  bool enabled() const { return enabled_; }

  // The shape of a step with this many rows in the global batch and in each micro-batch.
  StepShape& shape_of(int64_t batch_rows, const std::vector<std::span<const int64_t>>& micro_batches);

  // Replays a step of this shape and returns its timestamps, all but `start`. Captures it first when enough
  // steps have run eagerly. Returns nothing when the step must run eagerly, kernel by kernel. When a step
  // cannot be captured, CudaGraph::kOn throws FailedError; kAuto tells the notice and replays no more steps.
  // A UsageError of `compute` is thrown as it is.
  std::optional<StepTimestamps> replay(StepShape& shape);

  // Destroys the graphs, since other memory is computed on from now on. Steps run eagerly until their time
  // for capture has come again.
  void drop_graphs();

  // Call it after each eager step.
  void count_eager_step(StepShape& shape);

 private:
  bool captured(StepShape& shape);
  void capture(StepShape& shape);

  const CaptureOptions options_;
  const StepParts parts_;
  bool enabled_;
  int eager_steps_ = 0;                               // of all shapes
  std::map<std::vector<int64_t>, StepShape> shapes_;  // by rows of the batch and of each micro-batch
  std::unique_ptr<StepGraph> update_graph_;           // for all shapes; null for a lone replica
};

}  // namespace lockstep
