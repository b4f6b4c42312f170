// One replica of a training run: a full copy of the model on one device, with its gradients' sync, its
// optimizer and its rows. To follow a gradient, read step_eagerly(): gather, forward, backward, wait, update.
#pragma once

#include <c10/core/Event.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/gradients/micro_shards.h>
#include <lockstep/parallel/optimizer/optimizer.h>
#include <lockstep/parallel/timing/phase_span.h>
#include <lockstep/parallel/timing/step_times.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/parallel/training/step_graph.h>
#include <lockstep/support/notice.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct ReplicaOptions {
  GradientSyncOptions sync;
  OptimizerOptions optimizer;
  double clip_norm = 0;  // of the global gradient; 0: no bound
  Precision precision = Precision::kFp32;
  bool invariant = false;
  bool wait_for_device = false;             // after each phase, so that the moments on a GPU mean something
  CudaGraph cuda_graph = CudaGraph::kAuto;  // not with the two above and not with a trace
  int in_flight = 1;                        // steps queued on a GPU before its thread waits for the oldest
  Notice notice;                            // told when a step cannot be recorded; may be empty
};

// A replica's part of one step.
struct ReplicaStep {
  // Row numbers, one list a micro-batch. None is empty, unless the replica is invariant.
  std::vector<std::span<const int64_t>> micro_batches;
  int64_t batch_rows = 0;  // of the global batch
  double lr = 0;
  int64_t number = 0;  // of the step, from 0
};

class Replica {
 public:
  // In the replica's own thread, as all that follows; a collective: the module is moved to the endpoint's
  // device and gets rank 0's weights.
  Replica(const Model& model, Endpoint& endpoint, std::shared_ptr<const BatchSource> source,
          const ReplicaOptions& options);

  // A collective. On a GPU it only queues the work; steps of a shape that has been seen before are recorded
  // and replayed there. Throws FailedError where CudaGraph::kOn asks for that and it cannot be done.
  StepTimestamps step(const ReplicaStep& step);

  // (4) double on the device, since the last reset: {sum of losses, top-1, top-5, number of the first step
  // whose loss was NaN or infinite, or infinity}.
  const torch::Tensor& sums() const { return sums_; }
  void reset_sums();

  int64_t rows_trained() const { return rows_trained_; }

 private:
  // What steps of one shape work on: memory that stays, so that a recording of such a step can be replayed.
  struct Shape {
    int64_t batch_rows = 0;           // of the global batch
    std::vector<torch::Tensor> rows;  // row numbers on the device, one tensor a micro-batch
    std::vector<Inputs> inputs;       // likewise
    int eager_steps = 0;
    std::unique_ptr<StepGraph>
        graph;  // the whole step if the replica is alone, else its forward and backward
  };

  Shape& shape_of(const ReplicaStep& step);
  void prepare(const ReplicaStep& step, Shape& shape);
  StepTimestamps step_eagerly(Shape& shape);
  StepTimestamps step_by_graph(Shape& shape);
  void keep_bf16_weights();
  bool recorded(Shape& shape);
  void record(Shape& shape);

  void gather(Shape& shape);
  void forward_backward(Shape& shape, bool post_gradients);
  void sync_gradients(Shape& shape);
  void update();
  void add_to_sums(const Outcome& outcome);
  void wait_for_device() const;
  void bound_queue();
  bool alone() const { return endpoint_.world_size() == 1; }

  const ReplicaOptions options_;
  const Model model_;
  Endpoint& endpoint_;
  const std::shared_ptr<const BatchSource> source_;
  GradientSync sync_;
  FlatTensors params_;        // all that are trained
  FlatTensors bf16_weights_;  // of them in bfloat16, where the model computes with those
  std::optional<MicroShardSum> micro_shards_;
  FlatOptimizer optimizer_;
  torch::Tensor sums_;
  torch::Tensor never_;      // () double on the device: infinity, which given as a number the host would copy
  torch::Tensor number_;     // () double on the device: of the step under way
  int64_t next_number_ = 0;  // what number_ holds, as far as it has been queued
  int64_t rows_trained_ = 0;
  std::optional<DeviceClock> clock_;  // where there is a trace of a GPU's work

  std::map<std::vector<int64_t>, Shape> shapes_;  // by rows of the global batch and of each micro-batch
  bool use_graphs_ = false;
  int eager_steps_ = 0;
  std::unique_ptr<StepGraph> update_graph_;  // of a replica that is not alone
  std::deque<c10::Event> queued_;  // on a GPU: the ends of the steps that may still be under way there
};

}  // namespace lockstep
