// torch's memory format in which oneDNN and lockstep's kernels compute fastest.
#pragma once

#include <torch/types.h>

namespace lockstep {

// Returns a copy of x (n, c, h, w) in channels_last. contiguous() would return x itself where a dimension of
// size 1 makes both formats lie alike, and torch would still take its strides for the other format's.
inline torch::Tensor channels_last_copy(const torch::Tensor& x) {
  return torch::empty(x.sizes(), x.options(), torch::MemoryFormat::ChannelsLast).copy_(x);
}

}  // namespace lockstep
