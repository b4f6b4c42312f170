// The chapter's allreduce: every tensor is added into the first, which is then copied back to all.
#pragma once

#include <torch/types.h>

#include <span>

namespace lockstep {

// Replaces every tensor by the sum of all. per_device: one tensor per replica, all of one shape and dtype, on
// any devices; an empty list is allowed. The sum is taken in the order given, so all devices of one type get
// the same bits. With n tensors of S bytes the first device receives (n-1) S and sends (n-1) S, one transfer
// after the other. Throws UsageError when shapes or dtypes differ.
//
// Work is queued on the calling thread's current stream of each device. Events order the copies between GPUs;
// the host does not wait. Call it under torch::NoGradGuard when the tensors require gradients.
void allreduce(std::span<torch::Tensor> per_device);

}  // namespace lockstep
