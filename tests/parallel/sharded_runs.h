// The same training with and without TrainerOptions::shard.
#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <string>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/trainer_cases.h>

namespace lockstep::testing {

// Three layers, whose 38,040 numbers lie in several buckets of kSmallBuckets: some of one block with several
// owners, some of many. No bucket but the first begins between two blocks.
class WideLayersImpl : public torch::nn::Module {
 public:
  WideLayersImpl() {
    add("inner", {784, 40});
    add("inner_bias", {40});
    add("middle", {40, 130});
    add("middle_bias", {130});
    add("outer", {130, 10});
    add("outer_bias", {10});
  }

  torch::Tensor forward(const torch::Tensor& X) {
    const auto inner = torch::addmm(at(1), X.flatten(1), at(0)).tanh();
    const auto middle = torch::addmm(at(3), inner, at(2)).tanh();
    return torch::addmm(at(5), middle, at(4));
  }

 private:
  void add(const std::string& name, const std::vector<int64_t>& sizes) {
    int64_t numel = 1;
    for (const auto size : sizes) numel *= size;
    const auto numbers = torch::arange(numel, torch::kFloat32) + static_cast<double>(params_.size());
    params_.push_back(register_parameter(name, numbers.mul(.7).sin().mul(.1).view(sizes)));
  }
  const torch::Tensor& at(size_t i) const { return params_[i]; }

  std::vector<torch::Tensor> params_;
};

inline ModelFactory wide_layers() { return model_factory<WideLayersImpl>(); }

inline constexpr int64_t kSmallBuckets = 30'000;  // bytes

inline TrainerOptions sharded_options(int world) {
  auto options = options_for(world);
  options.lr.lr = .05;
  options.replica.sync.bucket_bytes = kSmallBuckets;
  return options;
}

}  // namespace lockstep::testing
