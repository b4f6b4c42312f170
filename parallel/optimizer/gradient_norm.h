// The norm of all gradients, by which they are clipped.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>

#include <lockstep/parallel/gradients/bucket_parts.h>

namespace lockstep {

class Endpoint;

// Returns the sums of squares of the flat order's blocks, kFlatBlock elements each, (blocks) double on the
// gradients' device. grads: the pieces of
// the flat order, in this order, each (n) of one floating-point dtype; all but the last one have whole
// blocks. The sums do not depend on threads or on how many replicas there are; on a CPU they do not depend
// on the pieces either. The host does not wait for a GPU.
torch::Tensor block_sums(std::span<const torch::Tensor> grads);

// A collective: the same, on all ranks, where each owns a part of every bucket. own: this rank's, (n) each.
// On a CPU the sums are those of all gradients in one piece, bit by bit.
torch::Tensor block_sums_of_parts(std::span<const torch::Tensor> own, const BucketParts& parts,
                                  Endpoint& endpoint);

// Returns the factor, () double and at most 1, that scales gradients with these block_sums() to a Euclidean
// norm of at most max_norm, as torch.nn.utils.clip_grad_norm_ computes it. NaN if a gradient is NaN. The host
// does not wait for a GPU.
torch::Tensor clip_scale(const torch::Tensor& sums, double max_norm);

}  // namespace lockstep
