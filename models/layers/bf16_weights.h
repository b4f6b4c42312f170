// bf16 weights: bfloat16 versions of a network's fp32 parameters (masters), kept up to date by an optimizer
// that writes both. With them autocast does not have to convert the parameters in every step.
#pragma once

#include <torch/types.h>

#include <unordered_map>
#include <vector>

namespace lockstep {

class Bf16Weights {
 public:
  // Uses these bf16 weights from now on: one for each of params, in their order, bfloat16 with the
  // parameter's sizes, strides and device. They are kept, not copied. An empty list ends their use. Throws
  // UsageError if they do not match params.
  void use(const std::vector<torch::Tensor>& params, const std::vector<torch::Tensor>& bf16_weights);

  // Returns the tensor that a layer computes with: param's bf16 weight if there is one and X's device is
  // under autocast to bfloat16, else param. The bf16 weight's gradient becomes param's: as float, or as it is
  // where param's grad_dtype is unset. Returns an undefined tensor for an undefined param.
  torch::Tensor of(const torch::Tensor& param, const torch::Tensor& X) const;

 private:
  std::unordered_map<const c10::TensorImpl*, torch::Tensor> weights_;
};

}  // namespace lockstep
