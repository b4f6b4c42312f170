// A network with a batch norm, and with a buffer that differs between replicas.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

namespace lockstep::testing {

class NormedLayersImpl : public torch::nn::Module {
 public:
  NormedLayersImpl()
      : inner_(register_module("inner", torch::nn::Linear(784, 6))),
        norm_(register_module("norm", torch::nn::BatchNorm2d(2))),
        outer_(register_module("outer", torch::nn::Linear(6, 10))) {
    own_ = register_buffer("own", torch::zeros({1}));
  }

  torch::Tensor forward(const torch::Tensor& X) {
    if (is_training()) own_.add_(X.sum());  // each replica has other rows
    const auto hidden = norm_(inner_(X.flatten(1)).view({-1, 2, 3, 1}));
    return outer_(hidden.relu().flatten(1));
  }

 private:
  torch::nn::Linear inner_;
  torch::nn::BatchNorm2d norm_;
  torch::nn::Linear outer_;
  torch::Tensor own_;
};

}  // namespace lockstep::testing
