// The scratch LeNet from torch's own layers, loss and optimizer: the reference for lockstep's results.
#pragma once

#include <torch/torch.h>

#include <lockstep/support/types.h>
#include <lockstep/tests/support/compare.h>

namespace lockstep::testing {

inline torch::nn::Sequential torch_lenet(torch::ScalarType dtype) {
  namespace nn = torch::nn;
  nn::Sequential net(nn::Conv2d(1, 20, 3), nn::ReLU(), nn::AvgPool2d(2), nn::Conv2d(20, 50, 5), nn::ReLU(),
                     nn::AvgPool2d(2), nn::Flatten(), nn::Linear(800, 128), nn::ReLU(), nn::Linear(128, 10));
  net->to(dtype);
  return net;
}

// torch's linear layers hold their weights transposed.
inline torch::Tensor as_torch(const torch::Tensor& param) { return param.dim() == 2 ? param.t() : param; }

inline void copy_into(torch::nn::Sequential& net, const Params& params) {
  const torch::NoGradGuard no_grad;
  auto own = net->parameters();
  for (size_t i = 0; i < own.size(); ++i) own[i].copy_(as_torch(params[i]));
}

// The gradients of the summed loss over all rows.
inline Params torch_gradients(const Params& params, const torch::Tensor& X, const torch::Tensor& y) {
  auto net = torch_lenet(X.scalar_type());
  copy_into(net, params);
  torch::nn::CrossEntropyLoss loss(torch::nn::CrossEntropyLossOptions().reduction(torch::kSum));
  loss(net->forward(X), y).backward();
  Params gradients;
  for (const auto& param : net->parameters()) gradients.push_back(as_torch(param.grad()));
  return gradients;
}

}  // namespace lockstep::testing
