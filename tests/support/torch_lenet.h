// The scratch LeNet from torch's own operators: the reference for training steps. (lenet_test.cpp compares
// the network with torch's own layers.)
#pragma once

#include <torch/types.h>

#include <lockstep/support/types.h>

namespace lockstep::testing {

// params: weight and bias of two convolutions and of two linear layers, whose weights are [in, out]; X:
// [rows, 1, 28, 28]. Returns the logits, [rows, 10].
inline torch::Tensor torch_lenet(const Params& params, const torch::Tensor& X) {
  auto features = torch::avg_pool2d(torch::conv2d(X, params[0], params[1]).relu(), 2);
  features = torch::avg_pool2d(torch::conv2d(features, params[2], params[3]).relu(), 2).flatten(1);
  const auto hidden = torch::linear(features, params[4].t(), params[5]).relu();
  return torch::linear(hidden, params[6].t(), params[7]);
}

// The gradients of the summed loss over all rows.
inline Params torch_gradients(const Params& params, const torch::Tensor& X, const torch::Tensor& y) {
  Params own;
  for (const auto& param : params) own.push_back(param.detach().clone().requires_grad_());
  torch::cross_entropy_loss(torch_lenet(own, X), y, {}, at::Reduction::Sum).backward();
  Params gradients;
  for (const auto& param : own) gradients.push_back(param.grad());
  return gradients;
}

}  // namespace lockstep::testing
