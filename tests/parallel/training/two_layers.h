// A network small enough for the fake GPUs, and rows for it on one of them.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>

#include <lockstep/data/resident_rows.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/support/whole_batch.h>

namespace lockstep::testing {

class TwoLayersImpl : public torch::nn::Module {
 public:
  // looks: called with the rows of each forward pass.
  explicit TwoLayersImpl(std::function<void(const torch::Tensor& X)> looks) : looks_(std::move(looks)) {
    const auto weight = [](int64_t rows, int64_t columns) {
      return torch::arange(rows * columns, torch::kFloat32).mul(.7).sin().mul(.1).view({rows, columns});
    };
    inner_ = register_parameter("inner", weight(784, 6));
    inner_bias_ = register_parameter("inner_bias", torch::zeros({6}));
    outer_ = register_parameter("outer", weight(6, 10));
    outer_bias_ = register_parameter("outer_bias", torch::zeros({10}));
    mean_ = register_buffer("mean", torch::zeros({6}));
  }

  torch::Tensor forward(const torch::Tensor& X) {
    if (looks_) looks_(X);
    const auto hidden = torch::addmm(inner_bias_, X.flatten(1), inner_).tanh();
    if (is_training()) {  // like the running averages of a batch norm
      const torch::NoGradGuard no_grad;
      mean_.mul_(.9).add_(hidden.detach().mean(0), .1);
    }
    return torch::addmm(outer_bias_, hidden, outer_);
  }

 private:
  const std::function<void(const torch::Tensor&)> looks_;
  torch::Tensor inner_, inner_bias_, outer_, outer_bias_, mean_;
};

inline ModelFactory two_layers(std::function<void(const torch::Tensor&)> looks = {}) {
  return model_factory<TwoLayersImpl>(std::move(looks));
}

// A model whose loss calls zero_grad(), which drops the gradients that were there.
inline ModelFactory zeroing_gradients(const ModelFactory& factory) {
  return [factory] {
    auto model = factory();
    model.loss_sum = [loss = model.loss_sum, module = model.module.get()](const Batch& rows) {
      module->zero_grad();
      return loss(rows);
    };
    return model;
  };
}

inline SourceFactory rows_on_device(int64_t rows) { return resident_rows(RowSource(rows).all()); }

}  // namespace lockstep::testing
