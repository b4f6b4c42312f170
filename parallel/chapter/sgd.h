// The chapter's optimizer: plain stochastic gradient descent.
#pragma once

#include <cstdint>

#include <lockstep/support/types.h>

namespace lockstep {

// Computes param -= lr / batch_size * param.grad and then zeroes the gradient in place. Every parameter must
// have a gradient: the sum over the rows of the whole batch. batch_size: rows of the whole batch, on all
// devices together.
void sgd(const Params& params, double lr, int64_t batch_size);

}  // namespace lockstep
