// The norm of all gradients, by which they are clipped.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>

namespace lockstep {

// Elements of the flat order (flat_layout() of gradients/buckets.h) whose squares are added as one.
inline constexpr int64_t kNormBlock = 1 << 16;

// Returns the sums of squares of the blocks, (blocks) double on the gradients' device. grads: the pieces of
// the flat order, in this order, each (n) of one floating-point dtype; all but the last one have whole
// blocks. The sums do not depend on threads or on how many replicas there are; on a CPU they do not depend
// on the pieces either. The host does not wait for a GPU.
torch::Tensor block_sums(std::span<const torch::Tensor> grads);

// Returns the factor, () double and at most 1, that scales gradients with these block_sums() to a Euclidean
// norm of at most max_norm, as torch.nn.utils.clip_grad_norm_ computes it. NaN if a gradient is NaN. The host
// does not wait for a GPU.
torch::Tensor clip_scale(const torch::Tensor& sums, double max_norm);

}  // namespace lockstep
