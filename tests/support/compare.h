// Differences between tensors.
#pragma once

#include <torch/types.h>

namespace lockstep::testing {

// max|a - b|, in double
inline double max_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.detach().to(torch::kFloat64) - b.detach().to(torch::kFloat64)).abs().max().item<double>();
}

inline double max_abs(const torch::Tensor& a) {
  return a.detach().abs().max().to(torch::kFloat64).item<double>();
}

// max|a - b| / max|b|; max|a| if b is all zeros
inline double relative_error(const torch::Tensor& a, const torch::Tensor& b) {
  return max_abs(b) == 0 ? max_abs(a) : max_difference(a, b) / max_abs(b);
}

}  // namespace lockstep::testing
