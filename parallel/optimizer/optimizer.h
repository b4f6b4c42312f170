// The optimizer of one replica, as Replica uses it: lockstep's own, fused over flat memory, or one of
// torch::optim.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/optimizer/flat_ranges.h>
#include <lockstep/parallel/optimizer/optimizer_options.h>
#include <lockstep/support/tensor_allocator.h>
#include <lockstep/support/types.h>

namespace lockstep {

class Endpoint;

// Not thread-safe. On a GPU work is queued on the current stream.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Updates these from now on. It keeps the state of parameters that it has had before, by name, and begins
  // anew with the others. Captured steps must be captured again. A collective if the ranks own parts.
  virtual void hold(TrainedParameters trained) = 0;

  // Sets the learning rate of the next steps.
  virtual void set_lr(double lr) = 0;

  // One step. scale: () of the gradients' dtype, a factor on them; undefined: 1. Leaves the gradients zero
  // for the next backward pass, and the rounded parameters in each range's bf16.
  virtual void step(const torch::Tensor& scale) = 0;

  // Throws UsageError where host_copies() does not know the state.
  virtual void require_known_state() {}

  // Returns host copies of what the steps keep from one to the next, by torch's name and the parameter's:
  // "exp_avg.conv1.weight"; "step" may be one for all. Some are made by the first step. A collective if the
  // ranks own parts. memory: for the copies; null: this rank keeps none.
  virtual std::vector<NamedTensor> host_copies(const TensorAllocator* memory) = 0;

  // Returns tensors with the names, shapes and dtypes of what load() takes, if that is as far as this state:
  // their values do not matter.
  virtual std::vector<NamedTensor> expected(const std::vector<NamedTensor>& state) = 0;

  // A collective: all ranks take rank 0's state, which fits expected(). That of other ranks is ignored.
  virtual void load(const std::vector<NamedTensor>& state, Endpoint& endpoint) = 0;

  // Has steps counted for each parameter alone, for those that were not trained from the same step on; or for
  // all together, by the largest count. Returns whether the counts have moved: graphs that were captured
  // count elsewhere.
  virtual bool count_steps_by_parameter(bool by_parameter) = 0;

  // The groups of all parameters as lines, for replicas to compare.
  virtual std::vector<std::string> lines() const = 0;
};

// device: of the parameters.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, torch::Device device);

// Returns true if steps are counted for each parameter alone in this state: "step.NAME", not "step".
bool counts_steps_by_parameter(const std::vector<NamedTensor>& state);

}  // namespace lockstep
