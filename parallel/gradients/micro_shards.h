// Gradients with the same bits for every number of replicas (ReplicaOptions::invariant).
//
// A floating-point sum depends on its order, and a kernel's result on its shapes. So the global batch is
// always cut into kMicroShards micro-shards. Each is computed alone, and their gradients are added in one
// fixed tree: ((g0+g1)+(g2+g3))+((g4+g5)+(g6+g7)). Each replica computes an aligned power of two of them,
// which is a subtree. It adds these, all replicas gather the subtrees' sums, and each replica adds those. The
// cost: smaller matrices, a copy of the gradients per level of the tree and per replica, and no overlap.
// Batch norm sees one micro-shard at a time; the running averages take them in order.
#pragma once

#include <torch/types.h>

#include <vector>

#include <lockstep/parallel/batch_norm/micro_shard_statistics.h>
#include <lockstep/parallel/communicator.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

inline constexpr int kMicroShards = 8;

// Throws UsageError unless world divides kMicroShards.
void check_invariant_world(int world);

// Sums one replica's micro-shards. Not thread-safe. Call it in the replica's thread.
class MicroShardSum {
 public:
  // gradients: (n), what backward adds to. Throws UsageError as MicroShardStatistics does.
  MicroShardSum(torch::nn::Module& module, torch::Tensor gradients, Endpoint& endpoint);

  // Call them before and after the forward and backward pass of each micro-shard of the replica, in order,
  // including those without rows.
  void begin();
  void end(bool has_rows);

  // A collective. Call it after the last micro-shard: `gradients` becomes the sum over all replicas, and the
  // running averages take all micro-shards.
  void sum();

 private:
  // The sum of a complete subtree of 2^level micro-shards.
  struct Partial {
    int level = 0;
    torch::Tensor sum;
  };

  void push(torch::Tensor sum);

  torch::Tensor gradients_;
  Endpoint& endpoint_;
  MicroShardStatistics statistics_;
  std::vector<Partial> partials_;  // larger subtrees first
};

}  // namespace lockstep
