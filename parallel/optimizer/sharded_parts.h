// The parts of a ShardedOptimizer, for its sources and for Replicas.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/optimizer/named_state.h>
#include <lockstep/parallel/optimizer/sliced_params.h>
#include <lockstep/parallel/optimizer/torch_state.h>
#include <lockstep/parallel/sharded_optimizer.h>

namespace lockstep {

struct ShardedOptimizer::Parts {
  // A parameter of the optimizer. It is placed at its first gradient, or when its state is loaded: until then
  // all ranks have all of its state, which one that has been built alone does not have.
  struct Slot {
    torch::Tensor param;
    size_t group = 0;
    SlicedParams* sliced = nullptr;  // null: not placed
    size_t at = 0;                   // its number there
  };

  Parts(std::unique_ptr<torch::optim::Optimizer> given, const ShardedOptimizerOptions& options);
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  void step(Endpoint& endpoint);
  void zero_grad(bool set_to_none);
  int64_t state_bytes() const;

  // Throws what `name_of` throws for a parameter.
  void require_named(const NameOfParameter& name_of) const;

  // As ShardedOptimizer::state(). memory: for the copies; null: nothing is returned.
  std::vector<NamedTensor> state(const NameOfParameter& name_of, Endpoint& endpoint,
                                 const TensorAllocator* memory);

  // Throws as require_optimizer_state() does.
  void require(const std::vector<NamedTensor>& state, const NameOfParameter& name_of,
               const std::string& whose) const;

  // A collective: goes on from a state which require() takes, the same on all ranks. Asks for the values of
  // one tensor at a time, and keeps what this rank owns of it.
  void take(const std::vector<NamedTensor>& state, const NameOfParameter& name_of, const ValuesOf& values,
            Endpoint& endpoint);

  std::unique_ptr<torch::optim::Optimizer> optimizer;  // its groups have the own slices
  int64_t bucket_bytes = 0;
  std::vector<Slot> slots;         // in the order in which they came into the groups
  std::list<SlicedParams> placed;  // of one dtype each

 private:
  void take_params();
  void shrink_new_states();
  void update(Endpoint& endpoint);
  bool update(const SlicedParams& sliced, size_t bucket);

  // Collectives.
  void place(const std::vector<size_t>& numbers, Endpoint& endpoint);
  void agree_on_kind(Endpoint& endpoint) const;
  void agree_to_place(const std::vector<size_t>& numbers, Endpoint& endpoint) const;

  void require_usable(const std::vector<size_t>& numbers, const Endpoint& endpoint) const;
  torch::Tensor report(const torch::Device& device) const;
  void require_same_reports(const torch::Tensor& all) const;
  std::vector<std::string> option_lines() const;
  std::string text_of(size_t slot) const;

  // The tensor by which torch's optimizer finds the state that this rank has; undefined if it has none.
  const torch::Tensor& key_of(const Slot& slot) const;
  std::vector<NamedTensor> own_state(const Slot& slot) const;
  void take_whole_state(const Slot& slot, const std::vector<NamedTensor>& whole, const ValuesOf& values);

  // The fields of the state of each parameter, which some ranks know.
  struct Fields;
  std::vector<Fields> told_fields(Endpoint& endpoint) const;
  void gather_fields(const SlicedParams& sliced, size_t bucket, std::vector<Fields>& fields,
                     Endpoint& endpoint, const TensorAllocator* memory) const;

  void require_same_rank(const Endpoint& endpoint);

  size_t in_groups_ = 0;  // slices
  int64_t steps_ = 0;
  int rank_ = 0;
  int world_ = 0;  // 0: of no communicator yet
};

}  // namespace lockstep
