// An optimizer of torch::optim for your own training loop on several replicas, of which each replica keeps a
// part of the state, as Python's ZeroRedundancyOptimizer does (stage 1 of ZeRO; docs/sharding.md):
//
//   struct Learner {  // one per replica
//     torch::nn::Linear net{3, 1};
//     ShardedOptimizer adam{torch::optim::Adam(net->parameters(), .05)};  // around the optimizer
//   };
//   ...
//     step.wait(own.net);   // or sync.wait() of a GradientSync
//     own.adam.step(step);  // with the Step of Replicas, or with the replica's Endpoint
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <lockstep/support/tensor_allocator.h>
#include <lockstep/support/types.h>

namespace lockstep {

class Endpoint;

struct ShardedOptimizerOptions {
  // Parameters are updated and fetched in buckets of at most so many bytes; a larger one has a bucket of its
  // own. A replica has memory for one bucket beside the state.
  int64_t bucket_bytes = 25 << 20;
};

// The state of each parameter is cut into contiguous slices, one per rank, between multiples of 4,096
// elements of a bucket. A rank holds the state of its slices alone: of N ranks each has about 1/N. step()
// lets torch's optimizer update the own slices, and gives all ranks the updated parameters, which have the
// same bits as by that optimizer on whole ones. (In 16 bits only where the replicas have one thread each:
// with several, torch rounds some elements of a whole parameter otherwise.) Gradients are as
// GradientSync::wait() leaves them: clip_grad_norm_(), micro-batches and several modules are as with torch's
// optimizers. Parameters keep their memory, which may be replaced between two steps.
//
// Not thread-safe. Build it anywhere; from the first step on it belongs to its replica's thread. step(),
// state() and load() are collectives: all ranks call them in the same order, with the same endpoint's
// communicator, and not between a backward pass and its wait(). Whatever one of them throws on one rank ends
// the collectives of all.
class ShardedOptimizer {
 public:
  // optimizer: SGD, Adam, AdamW, RMSprop or Adagrad of torch::optim, whose steps treat each element alone.
  // Its parameter groups, their options and a state that it has already are kept. Throws UsageError for any
  // other (LBFGS, whose step computes the loss several times; classes derived from these; null), for a
  // parameter that is given twice, and for a bucket_bytes below 1.
  template <std::derived_from<torch::optim::Optimizer> Kind>
  explicit ShardedOptimizer(Kind optimizer, const ShardedOptimizerOptions& options = {})
      : ShardedOptimizer(std::make_unique<Kind>(std::move(optimizer)), options) {}
  explicit ShardedOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer,
                            const ShardedOptimizerOptions& options = {});
  ~ShardedOptimizer();
  ShardedOptimizer(ShardedOptimizer&&) noexcept;
  ShardedOptimizer& operator=(ShardedOptimizer&&) noexcept;

  // A step with the gradients of all replicas, which are the same on each: call it after
  // GradientSync::wait(), or after Step::wait(). A parameter without a gradient stays as it is, as in torch.
  // When it returns, all ranks have all parameters (on a GPU: the current stream waits for them). Throws
  // UsageError for a sparse gradient; for a parameter that has holes in its memory, shares it with another
  // one, is on another device, or has another shape or dtype than in an earlier step; on all ranks when their
  // parameters or groups differ in kind, shape, dtype or options, and for parameters whose values differ at
  // their first step; and when the learning rates, options, or which parameters have gradients differ by now
  // (on a GPU this is looked at in the first step and in each 256th). Also throws the error that ended a
  // collective.
  void step(Endpoint& endpoint);

  // As torch's: drops the gradients of all parameters, or fills them with zeros.
  void zero_grad(bool set_to_none = true);

  // The groups with their options, such as the learning rate, which may be changed between two steps, alike
  // on all ranks. Their params() are no parameters, but this rank's slices.
  std::vector<torch::optim::OptimizerParamGroup>& param_groups();

  // For torch's learning rate schedulers, and for add_param_group(). Do not call its step(), which updates
  // nothing, nor torch::save(), which would keep the slices of this rank.
  torch::optim::Optimizer& optimizer();

  // Bytes of the state that this rank holds.
  int64_t state_bytes() const;

  // Returns what Replicas::state() has of an unsharded optimizer: the rates of the groups, "lr" (groups)
  // double, and each parameter's state by torch's names and the module's: "exp_avg.conv1.weight", with the
  // parameter's shape, and "step.conv1.weight", () int64. Copies on the host, on rank 0; nothing elsewhere.
  // memory: for the copies. Gathers one bucket at a time. Throws UsageError for a parameter of another
  // module.
  std::vector<NamedTensor> state(const torch::nn::Module& module, Endpoint& endpoint,
                                 const TensorAllocator& memory = heap_memory());

  // Goes on from the state of a sharded or an unsharded optimizer, of any number of ranks, which every rank
  // gives. Throws as state() does, and WeightsError on all ranks, changing nothing, if it is the state of
  // another optimizer or module, or if the ranks' states differ in names, shapes or dtypes.
  void load(const std::vector<NamedTensor>& state, const torch::nn::Module& module, Endpoint& endpoint);

  struct Parts;  // not for users

 private:
  friend class KeptReplica;

  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep
