// The part of a state that one replica has, and how the replica takes it back. Used in its thread.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include <lockstep/parallel/optimizer/named_state.h>
#include <lockstep/parallel/replicas/loop_parts.h>
#include <lockstep/support/train_state.h>

namespace lockstep {

class Endpoint;

inline constexpr const char* kStateHint = "this is the state of other modules, optimizers or tensors";

class KeptReplica {
 public:
  // Throws UsageError if T has another module than attach() has seen.
  KeptReplica(const ReplicaLoop::Parts& parts, int local);

  // The state of torch's optimizers. Throws UsageError for any optimizer with parameters of no attached
  // module.
  std::vector<NamedTensor> optimizers() const;

  // A collective: that of sharded ones. memory: for the copies; null: nothing is returned.
  std::vector<NamedTensor> sharded_optimizers(Endpoint& endpoint, const TensorAllocator* memory) const;

  // Buffers, and tensors that the user keeps.
  std::vector<NamedTensor> own() const;

  // Throws WeightsError unless take() takes it, and UsageError as optimizers() does. Ranks may differ, since
  // each has kept tensors of its own.
  void require(const TrainState& state) const;

  // A collective. values: of weights and optimizers; what replicas have for themselves is in the state.
  void take(const TrainState& state, const ValuesOf& values, Endpoint& endpoint) const;

 private:
  template <class Action>
  void for_each_optimizer(const Action& action) const;
  template <class Action>
  void for_each_sharded(const Action& action) const;
  void require_kept(const TrainState& state) const;
  void require_kept(const ReplicaLoop::Parts::Kept& kept, const ReplicaState& own) const;
  void take_kept(const ReplicaState& own) const;
  bool of_this_world(const TrainState& state) const;
  ReplicaState own_of(const TrainState& state) const;

  const ReplicaLoop::Parts& parts_;
  const int local_;
  const torch::Device device_;
};

}  // namespace lockstep
