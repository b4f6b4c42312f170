// bfloat16 copies of a network's parameters that somebody else keeps (an optimizer that writes both), so that
// autocast need not convert the parameters in every step.
#pragma once

#include <torch/types.h>

#include <unordered_map>
#include <vector>

namespace lockstep {

class Bf16Weights {
 public:
  // One for each of params, in their order: bfloat16, with the parameter's sizes, strides and device. Kept,
  // not copied. None: there are no copies any more. Throws UsageError for others.
  void use(const std::vector<torch::Tensor>& params, const std::vector<torch::Tensor>& bf16_weights);

  // What a layer computes with: param's copy where there is one and X's device is under autocast to bfloat16,
  // else param. The copy's gradient becomes param's, as float. Undefined for an undefined param.
  torch::Tensor of(const torch::Tensor& param, const torch::Tensor& X) const;

 private:
  std::unordered_map<const c10::TensorImpl*, torch::Tensor> weights_;
};

}  // namespace lockstep
