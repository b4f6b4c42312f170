// The parts of a ReplicaLoop, for its sources.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/replicas/replica_loop.h>
#include <lockstep/parallel/replicas/told_batches.h>

namespace lockstep {

using Sums = std::vector<NamedTensor>;  // () double on the replica's device

struct ReplicaLoop::Parts {
  explicit Parts(ReplicasOptions given);

  // An optimizer or a tensor that checkpoints hold.
  struct Kept {
    std::string name;
    OfReplica<torch::optim::Optimizer&> optimizer = {};  // one of these three
    OfReplica<ShardedOptimizer&> sharded = {};
    OfReplica<torch::Tensor&> tensor = {};
  };

  // The parameters and buffers, or the buffers, of a replica's attached modules under their names in
  // checkpoints.
  std::vector<NamedTensor> tensors(int local, bool buffers_only) const;
  std::string name_of(int local, const torch::Tensor& param, const std::string& optimizer) const;

  void run_batch(const ToldBatch& batch, int64_t step, std::vector<Sums>& sums, const Task& task);
  void run_replica(int local, Endpoint& endpoint, const Step::Numbers& numbers, Sums& sums, const Task& task);
  void compare_batches();
  NamedSums gather(const std::vector<Sums>& sums, int64_t rows);

  const ReplicasOptions options;
  ReplicaWorkers workers;
  const std::unique_ptr<Communicator> communicator;
  std::vector<std::vector<SyncedModule>> modules;  // by local replica
  std::vector<Sums> sums;                          // of the steps since the last take_sums(); the same
  std::vector<Kept> kept;
  int64_t rows = 0;  // since the last take_sums()
  int64_t steps = 0;
  int64_t evaluations = 0;
  ToldBatches told;
};

}  // namespace lockstep
