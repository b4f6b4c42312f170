// Raw pointers to tensors' data, for kernels.
#pragma once

#include <torch/types.h>

#include <type_traits>

#include <lockstep/support/bf16.h>

namespace lockstep {

static_assert(sizeof(Bf16) == sizeof(c10::BFloat16) && alignof(Bf16) == alignof(c10::BFloat16));

// torch's type for T: c10::BFloat16 for Bf16, T for all others.
template <class T>
using TorchType = std::conditional_t<std::is_same_v<T, Bf16>, c10::BFloat16, T>;
template <class T>
inline constexpr torch::ScalarType kScalarType = c10::CppTypeToScalarType<TorchType<T>>::value;

// A tensor's data; null for an undefined tensor. T must be the tensor's dtype: Bf16 for bfloat16, const T for
// read access. Throws c10::Error for another dtype.
template <class T>
T* data_or_null(const torch::Tensor& tensor) {
  using Stored = TorchType<std::remove_const_t<T>>;
  if (!tensor.defined()) return nullptr;
  if constexpr (std::is_const_v<T>) {
    return reinterpret_cast<T*>(tensor.const_data_ptr<Stored>());
  } else {
    return reinterpret_cast<T*>(tensor.mutable_data_ptr<Stored>());
  }
}

}  // namespace lockstep
