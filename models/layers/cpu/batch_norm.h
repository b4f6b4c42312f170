// The fused batch normalisation of batch_norm_kernels.h on a CPU. Needs no torch. Networks call
// batch_norm_relu.h instead.
#pragma once

#include <functional>
#include <span>

#include <lockstep/models/layers/batch_norm/batch_norm_layers.h>
#include <lockstep/models/layers/cpu/kernels.h>

namespace lockstep {

// For replicas that share a batch. Replaces the means (with the convolution's bias) and variances of this
// replica's rows, (c) each, by the whole batch's. Empty: this replica has all rows.
using MergeMoments = std::function<void(std::span<double> means, std::span<double> variances)>;

// The same for the sums that make dbias and dweight, (c) each. Returns the number of rows of the whole batch.
using MergeGradients = std::function<double(std::span<double> dbias, std::span<double> dweight)>;

// T is float or Bf16; In is T or float. rows >= 1, c is a multiple of 16. y, dx and dresidual are aligned to
// 64 bytes. Each of `threads` threads computes its own rows; sums over threads are in a fixed order. With
// `merge` the caller updates the running statistics, and dweight and dbias stay sums over these rows.
template <class T, class In>
void batch_norm_relu_forward_on_cpu(const BatchNormForward<T, In>& layer, const CpuKernels<float>& kernels,
                                    int threads, const MergeMoments& merge = {});
template <class T, class In>
void batch_norm_relu_backward_on_cpu(const BatchNormBackward<T, In>& layer, const CpuKernels<float>& kernels,
                                     int threads, const MergeGradients& merge = {});

}  // namespace lockstep
