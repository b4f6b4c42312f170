// Memory of an earlier batch, for the next one.
#pragma once

#include <torch/types.h>

namespace lockstep {

// Returns `tensor` if a batch can be written into it, else a new one.
inline torch::Tensor fitting(const torch::Tensor& tensor, at::IntArrayRef sizes,
                             const torch::TensorOptions& options) {
  const bool fits = tensor.defined() && tensor.sizes() == sizes && tensor.is_contiguous() &&
                    tensor.device() == options.device() && tensor.dtype() == options.dtype();
  return fits ? tensor : torch::empty(sizes, options);
}

}  // namespace lockstep
