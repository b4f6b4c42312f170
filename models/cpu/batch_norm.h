// The fused batch normalisation of batch_norm_kernels.h on a CPU. Needs no torch. Networks call
// batch_norm_relu.h instead.
#pragma once

#include <lockstep/models/batch_norm_layers.h>
#include <lockstep/models/cpu/kernels.h>

namespace lockstep {

// T is float or Bf16; In is T or float. rows >= 1, c is a multiple of 16. y, dx and dresidual are aligned to
// 64 bytes. Each of `threads` threads computes its own rows; sums over threads are in a fixed order.
template <class T, class In>
void batch_norm_relu_forward_on_cpu(const BatchNormForward<T, In>& layer, const CpuKernels<float>& kernels,
                                    int threads);
template <class T, class In>
void batch_norm_relu_backward_on_cpu(const BatchNormBackward<T, In>& layer, const CpuKernels<float>& kernels,
                                     int threads);

}  // namespace lockstep
