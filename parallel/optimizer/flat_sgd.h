// Stochastic gradient descent over flat buffers: one CUDA kernel. Needs no torch.
#pragma once

#include <cstdint>

#include <lockstep/support/bf16.h>

namespace lockstep {

struct FlatSgdOptions {
  double momentum = 0;
  double weight_decay = 0;  // L2, added to the gradient
  bool nesterov = false;    // requires momentum
};

// All buffers are on the current CUDA device and have `size` elements.
template <class T>
struct FlatSgdBuffers {
  T* params = nullptr;
  T* grads = nullptr;
  T* momentum = nullptr;  // null if options.momentum is 0; zeros before the first step
  Bf16* bf16 = nullptr;   // the parameters rounded to bfloat16, written by each step; null: not wanted
  int64_t size = 0;
};

// Updates each element as torch::optim::SGD does, computed in T and in this order:
//   g = grad scale + weight_decay p;  m = momentum m + g;  g = nesterov ? g + momentum m : m;  p -= lr g
// and then grad = 0, bf16 = p. lr and scale point to device memory that the kernel reads when it runs, so a
// captured graph can be replayed with other values; a null scale means 1. Returns before the work is done.
// Does nothing if size is 0. Throws UsageError for momentum without a momentum buffer, a momentum buffer
// without momentum, and nesterov without momentum; DeviceError when the kernel cannot be started, and in a
// build without CUDA.
void flat_sgd(const FlatSgdBuffers<float>& buffers, const FlatSgdOptions& options, const double* lr,
              const float* scale, CUstream_st* stream);
void flat_sgd(const FlatSgdBuffers<double>& buffers, const FlatSgdOptions& options, const double* lr,
              const double* scale, CUstream_st* stream);

}  // namespace lockstep
