// The state of torch's optimizers as named tensors.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// Kinds of torch::optim::OptimizerParamState: those of SGD, Adam, AdamW, RMSprop and Adagrad, which the
// options of a parameter group tell apart.
class TorchState {
 public:
  virtual ~TorchState() = default;

  // Returns the state by torch's names, such as "exp_avg", without what the optimizer has not made. A number
  // is a () int64 tensor on the host; the other tensors are the optimizer's own. Throws UsageError when it is
  // the state of another optimizer.
  virtual std::vector<NamedTensor> tensors(torch::optim::OptimizerParamState& state) const = 0;

  // Returns tensors like those that a step leaves for this parameter. Their values do not matter.
  virtual std::vector<NamedTensor> like(const torch::Tensor& param) const = 0;

  // Returns a new state of these values, which fit like(), with memory of its own beside the parameter.
  virtual std::unique_ptr<torch::optim::OptimizerParamState> made_of(const std::vector<NamedTensor>& tensors,
                                                                     const torch::Tensor& param) const = 0;

  // Returns the options of the group: "lr 0.1, momentum 0.9, ...".
  virtual std::string options() const = 0;
};

// Returns the state's kind for a group with these options, which outlive it; null for those of an optimizer
// of another library.
std::unique_ptr<TorchState> torch_state(const torch::optim::OptimizerOptions& options);

}  // namespace lockstep
