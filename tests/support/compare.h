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

}  // namespace lockstep::testing
