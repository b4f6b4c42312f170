// Checks the arguments of lockstep's CPU kernels.
#pragma once

#include <torch/types.h>

#include <utility>
#include <vector>

namespace lockstep {

using ShapedTensors = std::vector<std::pair<torch::Tensor, std::vector<int64_t>>>;

// Throws c10::Error unless each tensor has its shape and this type and is on a CPU.
void check_params(torch::ScalarType type, const ShapedTensors& params);

// The same for kernels that compute in T, float or double.
template <class T>
void check_params(const ShapedTensors& params) {
  check_params(c10::CppTypeToScalarType<T>::value, params);
}

}  // namespace lockstep
