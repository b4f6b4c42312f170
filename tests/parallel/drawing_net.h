// A network that draws random numbers in every step, and rows that do.
#pragma once

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>

#include <lockstep/support/model_factory.h>
#include <lockstep/tests/support/whole_batch.h>

namespace lockstep::testing {

class DrawingNetImpl : public torch::nn::Module {
 public:
  explicit DrawingNetImpl(bool also_in_evaluation = false) : also_in_evaluation_(also_in_evaluation) {
    const torch::NoGradGuard no_grad;  // its weights are the same in every process
    outer_->weight.copy_(torch::linspace(-.1, .1, outer_->weight.numel()).view_as(outer_->weight));
    outer_->bias.zero_();
  }

  torch::Tensor forward(const torch::Tensor& X) {
    const auto rows = X.flatten(1);
    return outer_(also_in_evaluation_ ? torch::dropout(rows, .5, true) : dropout_(rows));
  }

 private:
  const bool also_in_evaluation_;
  torch::nn::Dropout dropout_ = register_module("dropout", torch::nn::Dropout(.5));
  torch::nn::Linear outer_ = register_module("outer", torch::nn::Linear(784, 10));
};

inline ModelFactory drawing_factory(bool also_in_evaluation = false) {
  return model_factory<DrawingNetImpl>(also_in_evaluation);
}

// Adds noise to the images.
class NoisySource : public BatchSource {
 public:
  explicit NoisySource(int64_t rows) : rows_(rows) {}
  int64_t size() const override { return rows_.size(); }
  BatchSpec spec() const override { return rows_.spec(); }
  void gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const override {
    rows_.gather(rows, epoch, into);
    into[0] = into[0] + .1 * torch::randn_like(into[0]);
  }

 private:
  RowSource rows_;
};

}  // namespace lockstep::testing
