// Gradients that do not depend on the number of replicas, to the last bit (`--invariant`).
//
// Floating-point sums depend on their order, and kernels' results on the shape they are given. So the global
// batch is always cut into kMicroShards parts, whatever the number of replicas; each is computed alone, and
// the parts' gradients are added in one fixed tree: ((g0+g1)+(g2+g3))+((g4+g5)+(g6+g7)). A replica has an
// aligned power of two of them, a subtree; so it adds what it has, all gather the subtrees' sums, and each
// adds those. What it costs: smaller matrices, one more copy of the gradients for each level of the tree and
// each replica, and no overlap. Batch norm sees one micro-shard at a time, and the running averages take them
// in their order.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/support/types.h>

namespace lockstep {

inline constexpr int kMicroShards = 8;

// Throws UsageError unless world divides kMicroShards.
void check_invariant_world(int world);

// One replica's part. Used from its thread.
class MicroShardSum {
 public:
  // gradients: (n), what backward adds into. The module's batch norms must have a fixed momentum (torch's
  // default has; UsageError otherwise).
  MicroShardSum(torch::nn::Module& module, torch::Tensor gradients, Endpoint& endpoint);

  // Around the forward and backward pass of each of the replica's micro-shards in turn, those without rows
  // too.
  void begin();
  void end(bool has_rows);

  // After the last one: `gradients` is the sum over all replicas, and the running averages have taken all
  // micro-shards. A collective.
  void reduce();

 private:
  // A batch norm's running averages, and what its micro-shards bring.
  struct Statistics {
    torch::Tensor running;  // the module's own buffer, (channels)
    double momentum = .1;
    torch::Tensor kept;                // what it was before the step
    std::vector<torch::Tensor> parts;  // momentum x the statistics of each of the replica's micro-shards
  };

  // How many batches a batch norm has seen.
  struct Counter {
    torch::Tensor running;  // the module's own buffer, ()
    torch::Tensor kept;     // what it was before the step
  };

  // A subtree that is complete: the sum of 2^level micro-shards.
  struct Partial {
    int level = 0;
    torch::Tensor sum;
  };

  void keep_statistics();
  void push(torch::Tensor sum);
  void update_statistics();

  torch::Tensor gradients_;
  Endpoint& endpoint_;
  std::vector<Statistics> statistics_;
  std::vector<Counter> counters_;
  std::vector<Partial> partials_;  // larger ones first
  std::vector<bool> has_rows_;     // of the replica's micro-shards in this step
};

}  // namespace lockstep
