// Convolutions of 3 x 3 with stride 1 on CPUs, by lockstep's kernels.
#pragma once

#include <torch/types.h>

#include <lockstep/models/layers/cpu/kernels.h>

namespace lockstep {

// Returns true if conv3x3() takes x as `type` with these filters, and is faster than torch: on a CPU, at
// least one image, filters of 3 x 3 in float, multiples of 64 channels, and x as float, or as bfloat16 if
// fast_bf16_kernels().
bool conv3x3_takes(const torch::Tensor& x, torch::ScalarType type, const torch::Tensor& weight);

// Bytes that its calls hold at once beside tensors, with this many threads and images of float, in a network
// whose largest convolution has this shape. For the memory estimate of a plan.
int64_t conv3x3_bytes(const Conv3x3Shape& shape, int64_t threads);

// Returns conv2d(x, weight, bias, 1, 1), (n, out, h, w) in channels_last: x (n, in, h, w), weight (out, in,
// 3, 3), bias (out) or undefined. x and its gradient are float or bfloat16, even under autocast; everything
// else is float. So is the result for bfloat16 x: it is not rounded, the operation after it has to do that.
// Arguments in channels_last are not copied.
//
// Computed with Winograd's tiles (conv3x3_inline.h). In float the error against double is at most five times
// that of torch's sums (eight on CPUs that round products, without FMA). In bfloat16 x and weight are rounded
// after they are transformed. Differentiable once, in all three. It uses as many threads as torch's
// operations; sums over threads are in a fixed order, so that the same number of threads gives the same bits.
// Throws c10::Error for other tensors.
torch::Tensor conv3x3(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

// The same by the given kernels, which must outlive the result's graph. T is the type of x: float, double or
// Bf16; with double everything is double.
template <class T>
torch::Tensor conv3x3_by(const Conv3x3Kernels<T>& kernels, const torch::Tensor& x,
                         const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace lockstep
