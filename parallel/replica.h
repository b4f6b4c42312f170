// One replica of a training run: a full copy of the model on one device, with its gradients' sync, its
// optimizer and its rows. To follow a gradient, read step(): gather, forward, backward, wait, update.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/micro_shards.h>
#include <lockstep/parallel/optimizer.h>
#include <lockstep/parallel/precision.h>
#include <lockstep/parallel/step_times.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct ReplicaOptions {
  GradientSyncOptions sync;
  OptimizerOptions optimizer;
  double clip_norm = 0;  // of the global gradient; 0: no bound
  Precision precision = Precision::kFp32;
  bool invariant = false;
  bool wait_for_device = false;  // after each phase, so that the moments on a GPU mean something
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

  // A collective. On a GPU it only queues the work.
  StepMoments step(const ReplicaStep& step);

  // (4) double on the device, since the last reset: {sum of losses, top-1, top-5, number of the first step
  // whose loss was NaN or infinite, or infinity}.
  const torch::Tensor& sums() const { return sums_; }
  void reset_sums();

  int64_t rows_trained() const { return rows_trained_; }

 private:
  void gather(const ReplicaStep& step);
  void forward_backward(const ReplicaStep& step);
  void sync_gradients();
  void update(double lr);
  void add_to_sums(const Outcome& outcome, int64_t step);
  void wait_for_device() const;

  const ReplicaOptions options_;
  const Model model_;
  Endpoint& endpoint_;
  const std::shared_ptr<const BatchSource> source_;
  GradientSync sync_;
  FlatTensors params_;  // all that are trained
  std::optional<MicroShardSum> micro_shards_;
  FlatOptimizer optimizer_;
  std::vector<Inputs> inputs_;  // one a micro-batch, reused from step to step
  torch::Tensor sums_;
  int64_t rows_trained_ = 0;
};

}  // namespace lockstep
