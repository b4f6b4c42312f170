// Stochastic gradient descent over flat buffers by one kernel. Needs no torch.
#pragma once

#include <cstdint>

#include <lockstep/support/bf16.h>

namespace lockstep {

struct FlatSgdOptions {
  double momentum = 0;
  double weight_decay = 0;  // L2, added to the gradient
  bool nesterov = false;    // needs momentum
};

// On the current CUDA device, all of `size` elements.
template <class T>
struct FlatSgdBuffers {
  T* params = nullptr;
  T* grads = nullptr;
  T* momentum = nullptr;  // null: options.momentum is 0. Zeros before the first step
  Bf16* bf16 = nullptr;   // null: none. The parameters once more, rounded
  int64_t size = 0;
};

// For each element, in T and in this order, the update of torch::optim::SGD:
//   g = grad scale + weight_decay p;  m = momentum m + g;  g = nesterov ? g + momentum m : m;  p -= lr g
// and then grad = 0, bf16 = p. lr and scale are read on the device when the kernel runs, so that a captured
// graph can be replayed with others; scale may be null, for 1. Returns before the work is done; size 0 does
// nothing. Throws UsageError for momentum without a buffer for it, a buffer without momentum, and nesterov
// without momentum; DeviceError where the kernel cannot be started, and in a build without CUDA.
void flat_sgd(const FlatSgdBuffers<float>& buffers, const FlatSgdOptions& options, const double* lr,
              const float* scale, CUstream_st* stream);
void flat_sgd(const FlatSgdBuffers<double>& buffers, const FlatSgdOptions& options, const double* lr,
              const double* scale, CUstream_st* stream);

}  // namespace lockstep
