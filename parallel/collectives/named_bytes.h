// Named tensors of any shapes as bytes, so that they can travel between ranks.
#pragma once

#include <torch/types.h>

#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// (n) uint8 on the host. Waits for a GPU.
torch::Tensor to_bytes(const std::vector<NamedTensor>& tensors);

// The inverse: contiguous tensors on the host. bytes: of to_bytes() in this program, maybe on another host.
std::vector<NamedTensor> from_bytes(const torch::Tensor& bytes);

}  // namespace lockstep
