// LeNet test data, and steps of LeNet by each of its kernels.
#pragma once

#include <torch/autograd.h>

#include <algorithm>
#include <set>
#include <vector>

#include <lockstep/models/lenet.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/threads.h>

namespace lockstep::testing {

using Tensors = std::vector<torch::Tensor>;

// Tensors for LeNet from torch's generator: doubles that floats can hold. The parameters are so large that
// both ReLUs stop about half of their inputs.
inline torch::Tensor normal(torch::IntArrayRef shape, double scale) {
  return (torch::randn(shape) * scale).to(torch::kFloat64);
}
inline torch::Tensor random_images(int64_t rows) {
  return torch::rand({rows, 1, 28, 28}).to(torch::kFloat64);
}
inline Tensors normal_filters() {  // W1, b1, W2, b2
  return {normal({20, 1, 3, 3}, .3), normal({20}, .1), normal({50, 20, 5, 5}, .05), normal({50}, .1)};
}
inline Tensors normal_linear() {  // W3, b3, W4, b4
  return {normal({800, 128}, .05), normal({128}, .2), normal({128, 10}, .1), normal({10}, .2)};
}

// Images, parameters and the gradient of the logits.
struct LeNetCase {
  explicit LeNetCase(int64_t rows) {
    torch::manual_seed(rows);
    X = random_images(rows);
    params = normal_filters();
    const auto linear = normal_linear();
    params.insert(params.end(), linear.begin(), linear.end());
    gradient = normal({rows, 10}, 1);
  }

  torch::Tensor X, gradient;
  Tensors params;
};

// Returns the parameters as leaves; those in `trained` need a gradient.
inline Tensors leaves_of(const LeNetCase& test, torch::ScalarType type, const std::set<size_t>& trained) {
  Tensors leaves;
  for (size_t i = 0; i < test.params.size(); ++i) {
    leaves.push_back(test.params[i]
                         .to(type, /*non_blocking=*/false, /*copy=*/true)
                         .set_requires_grad(trained.contains(i)));
  }
  return leaves;
}
inline const std::set<size_t> kAllOfLeNet = {0, 1, 2, 3, 4, 5, 6, 7};

// Returns the logits, then the parameters' gradients, undefined for those that are not trained.
inline Tensors lenet_step(Kernels kernels, const LeNetCase& test, torch::ScalarType type,
                          const std::set<size_t>& trained = kAllOfLeNet) {
  auto leaves = leaves_of(test, type, trained);
  const auto logits = lenet_by(kernels, test.X.to(type), leaves);
  logits.backward(test.gradient.to(logits.scalar_type()));
  Tensors all{logits.detach()};
  for (const auto& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

inline bool equal_tensors(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.equal(y); });
}

// The largest relative_error() of the tensors.
inline double worst_error(const Tensors& found, const Tensors& expected) {
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, relative_error(found[i], expected[i]));
  }
  return worst;
}

}  // namespace lockstep::testing
