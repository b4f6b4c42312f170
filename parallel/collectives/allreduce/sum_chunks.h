// The sum of one chunk over the replicas of a process, for the algorithms that cut tensors.
#pragma once

#include <torch/types.h>

#include <vector>

namespace lockstep {

// Each tensor of `sums` becomes ((c0 + c1) + c2) + ..., which leaves the same bits in all of them; it may be
// one of the chunks. chunks: two or more. All tensors are (n), contiguous, of one dtype. In host memory this
// is one pass. Otherwise it is computed on `device`, on the calling thread's current stream.
void sum_chunks(const std::vector<torch::Tensor>& chunks, const std::vector<torch::Tensor>& sums,
                torch::Device device);

}  // namespace lockstep
