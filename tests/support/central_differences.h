// Compares gradients with central differences, for functions in double.
#pragma once

#include <torch/autograd.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::testing {

// Compares derivatives of <weights, f(at)> along random directions, three per tensor of `at`,
// with central differences of this step. Returns the largest |derivative - difference| / |gradient|
// |direction|.
template <class Function>
double worst_derivative(const Function& f, const std::vector<torch::Tensor>& at, const torch::Tensor& weights,
                        double step) {
  std::vector<torch::Tensor> leaves;
  for (const auto& tensor : at) leaves.push_back(tensor.detach().clone().requires_grad_());
  const auto gradients = torch::autograd::grad({f(leaves)}, leaves, {weights});
  const auto objective = [&](size_t moved, const torch::Tensor& by) {
    auto inputs = at;
    inputs[moved] = at[moved].detach() + by;
    return (f(inputs).detach() * weights).sum().template item<double>();
  };
  double worst = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto direction = torch::randn_like(leaves[i].detach());
      const double difference =
          (objective(i, step * direction) - objective(i, -step * direction)) / (2 * step);
      const double derivative = (gradients[i] * direction).sum().template item<double>();
      const double scale = (gradients[i].norm() * direction.norm()).template item<double>();
      worst = std::max(worst, std::abs(derivative - difference) / scale);
    }
  }
  return worst;
}

}  // namespace lockstep::testing
