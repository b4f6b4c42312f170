// The memory of a planned run, by its plan.
#pragma once

#include <cstdint>

#include <lockstep/app/train/plan/train_plan.h>

namespace lockstep {

// The bytes that a replica holds from one step to the next.
struct HeldBytes {
  int64_t weights = 0;    // that layers compute with
  int64_t masters = 0;    // of weights in bf16, in fp32
  int64_t gradients = 0;  // with Shard::kGradients the replica's part
  int64_t buckets = 0;    // with Shard::kGradients: only while backward runs, of the two that are in use
  int64_t moments = 0;    // of the optimizer; shared out with any Shard
  int64_t average = 0;    // of the weights; shared out with any Shard

  int64_t all() const { return weights + masters + gradients + buckets + moments + average; }
};
HeldBytes held_bytes(const TrainPlan& plan);

// The same of one among so many replicas, with what they share out then.
HeldBytes held_bytes(const TrainPlan& plan, int replicas, Shard shard);

// The values that the optimizer keeps per parameter: 1 for SGD with momentum, 2 for Adam.
int64_t moments_of(const OptimizerOptions& optimizer);

// Returns an estimate of the bytes that one replica needs on such a device for a step of this many rows.
int64_t replica_bytes(const TrainPlan& plan, int64_t rows, torch::DeviceType device);

// Returns an estimate of the host memory, in bytes, of this process's replicas on the CPU, checkpoints,
// compressed sums, and images that are decoded while training. Replicas on GPUs need little.
int64_t host_bytes(const TrainPlan& plan);

// Returns the bytes of a checkpoint: of the weights, and per trained one of what is kept beside it. 0 for a
// run without checkpoints.
int64_t checkpoint_bytes(const TrainPlan& plan);

}  // namespace lockstep
