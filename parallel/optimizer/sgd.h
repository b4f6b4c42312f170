// The chapter's optimizer: plain stochastic gradient descent.
#pragma once

#include <cstdint>

#include <lockstep/support/types.h>

namespace lockstep {

// param -= lr / batch_size * param.grad, then the gradient is zeroed in place. The gradient is the sum over
// the rows of the batch, so batch_size is the rows of the whole batch, on all devices.
void sgd(const Params& params, double lr, int64_t batch_size);

}  // namespace lockstep
