// How far two tensors are apart.
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

// max|a - b|, as a part of max|b| where b is not all zeros
inline double relative_error(const torch::Tensor& a, const torch::Tensor& b) {
  return max_abs(b) == 0 ? max_abs(a) : max_difference(a, b) / max_abs(b);
}

}  // namespace lockstep::testing
