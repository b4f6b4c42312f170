// The chapter's allreduce: every tensor is added into the first, which is then copied back to all.
#pragma once

#include <torch/types.h>

#include <span>

namespace lockstep {

// Afterwards each tensor holds the sum of all, taken in the order given: bit-identical on every device of one
// type. One tensor a replica, same shape and dtype, on any devices; throws UsageError where shapes or dtypes
// differ. With n tensors of S bytes the first device receives (n-1) S and sends (n-1) S, one after the other.
//
// Enqueues on the calling thread's current stream of each device; copies between GPUs are ordered by events,
// no host waits. Must be called without gradient recording where the tensors require gradients.
void allreduce(std::span<torch::Tensor> per_device);

}  // namespace lockstep
