// The part of Replicas<T> (parallel/replicas.h) that does not depend on T: it knows each replica by its index
// in this process.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/replicas/step.h>
#include <lockstep/support/tensor_allocator.h>
#include <lockstep/support/train_state.h>

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

class ShardedOptimizer;

struct ReplicasOptions {
  std::vector<torch::Device> devices;                     // one replica each; may be listed more than once
  std::shared_ptr<ProcessGroup> process_group = nullptr;  // null: this process alone
  uint64_t seed = 0;                // of what a step draws (ReplicaRandom), with its number and the rank
  std::vector<double> split = {};   // shares of the rows, one per rank (shard_sizes()); empty: even ones
  std::optional<int> threads = {};  // intra-op threads of each replica; empty: as ReplicaWorkers chooses them
  Allreduce algorithm = Allreduce::kAuto;
  Compress compress = Compress::kNone;
};

class ReplicaLoop {
 public:
  template <class Thing>
  using OfReplica = std::function<Thing(int local)>;
  using Task = std::function<void(int local, Step& step)>;

  // A batch, and what each replica does with its rows.
  struct Dealt {
    int64_t rows = 0;
    uint64_t digest = 0;  // batch_digest(); 0 where this process is alone
    Task task = {};
  };

  explicit ReplicaLoop(ReplicasOptions options);
  ~ReplicaLoop();
  ReplicaLoop(const ReplicaLoop&) = delete;
  ReplicaLoop& operator=(const ReplicaLoop&) = delete;

  // Calls create(local, endpoint) for one replica after the other, each in its thread, with the same draws.
  void build(const std::function<void(int local, Endpoint& endpoint)>& create);
  // Drops what it knows of the replicas' modules and calls destroy(local), in each replica's thread, when the
  // devices are idle.
  void end(const std::function<void(int local)>& destroy) noexcept;

  // module: called in the replica's thread, now and before each use of it.
  void attach(const std::string& name, const OfReplica<torch::nn::Module&>& module,
              const GradientSyncOptions& options);
  void keep(const std::string& name, OfReplica<torch::optim::Optimizer&> optimizer);
  void keep(const std::string& name, OfReplica<ShardedOptimizer&> optimizer);
  void keep(const std::string& name, OfReplica<torch::Tensor&> tensor);

  void step(const Dealt& batch);
  NamedSums evaluate(const Dealt& batch);
  NamedSums take_sums();
  void run(const std::function<void(int local, Endpoint& endpoint)>& task);
  TrainState state(const TensorAllocator& memory);
  void load(const TrainState& state);
  void check_sync();
  void barrier();

  int world_size() const;
  int local_size() const;
  int first_rank() const;
  int64_t steps_taken() const;

  struct Parts;  // not for users

 private:
  const std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep
