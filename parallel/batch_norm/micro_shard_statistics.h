// Running averages of batch norms that do not depend on the number of replicas (ReplicaOptions::invariant).
// Each micro-shard is normalised alone, and the averages take the micro-shards of all replicas in order.
#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include <lockstep/parallel/communicator.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

// Belongs to one replica. Not thread-safe. Call it in the replica's thread.
class MicroShardStatistics {
 public:
  // Throws UsageError unless all batch norms of the module have a momentum, as torch's default has. Those
  // that are in eval mode in a step keep their averages.
  explicit MicroShardStatistics(const torch::nn::Module& module);

  // Call them before and after the forward pass of each micro-shard of the replica, in order, including those
  // without rows.
  void begin();
  void end(bool has_rows);

  // A collective. Call it after the last micro-shard of a step.
  void merge(Endpoint& endpoint);

 private:
  // A batch norm with running averages.
  struct Norm {
    std::shared_ptr<const torch::nn::Module> module;
    torch::Tensor mean, variance;  // the module's own buffers, (channels)
    torch::Tensor batches;         // the module's own buffer, ()
    double momentum = .1;

    // These belong to the step.
    torch::Tensor kept;          // mean and variance before it, (2, channels); undefined: it does not train
    torch::Tensor kept_batches;  // ()
    std::vector<torch::Tensor> parts;  // momentum x the statistics of each of the replica's micro-shards
  };

  std::vector<Norm> norms_;
  std::vector<int64_t> has_rows_;  // 1 or 0, of the replica's micro-shards in this step
};

}  // namespace lockstep
