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

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/support/types.h>

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
  // gradients: (n), what backward adds to. Throws UsageError unless all batch norms of the module have a
  // momentum, as torch's default has. Those that are in eval mode in a step keep their averages.
  MicroShardSum(torch::nn::Module& module, torch::Tensor gradients, Endpoint& endpoint);

  // Call them before and after the forward and backward pass of each micro-shard of the replica, in order,
  // including those without rows.
  void begin();
  void end(bool has_rows);

  // A collective. Call it after the last micro-shard: `gradients` becomes the sum over all replicas, and the
  // running averages take all micro-shards.
  void sum();

 private:
  // A batch norm with running averages.
  struct Norm {
    std::shared_ptr<const torch::nn::Module> module;
    torch::Tensor mean, variance;  // the module's own buffers, (channels)
    torch::Tensor batches;         // the module's own buffer, ()
    double momentum = .1;
  };

  // A running average of a batch norm that trains in this step.
  struct Statistics {
    torch::Tensor running;  // the module's own buffer, (channels)
    double momentum = .1;
    torch::Tensor kept;                // its value before the step
    std::vector<torch::Tensor> parts;  // momentum x the statistics of each of the replica's micro-shards
  };

  // How many batches a batch norm has seen.
  struct Counter {
    torch::Tensor running;  // the module's own buffer, ()
    torch::Tensor kept;     // its value before the step
  };

  // The sum of a complete subtree of 2^level micro-shards.
  struct Partial {
    int level = 0;
    torch::Tensor sum;
  };

  void keep_statistics();
  void push(torch::Tensor sum);
  void update_statistics();

  torch::Tensor gradients_;
  Endpoint& endpoint_;
  std::vector<Norm> norms_;
  std::vector<Statistics> statistics_;
  std::vector<Counter> counters_;
  std::vector<Partial> partials_;  // larger subtrees first
  std::vector<bool> has_rows_;     // of the replica's micro-shards in this step
};

}  // namespace lockstep
