// Convolutions of 3 x 3 with stride 1 on processors, by our own kernels.
#pragma once

#include <torch/types.h>

#include <lockstep/models/cpu/kernels.h>

namespace lockstep {

// Whether conv3x3() takes x as `type` and such filters, and is faster with them than torch: at least one
// image, filters of 3 x 3 of float, numbers of channels that are multiples of 64, on a processor; x as float,
// or as bfloat16 where fast_bf16_kernels().
bool conv3x3_takes(const torch::Tensor& x, torch::ScalarType type, const torch::Tensor& weight);

// Bytes that its calls hold at once beside tensors, with so many threads and images of float, in a network
// whose largest convolution has this shape. For the memory estimate of a plan.
int64_t conv3x3_bytes(const Conv3x3Shape& shape, int64_t threads);

// conv2d(x, weight, bias, 1, 1): x (n, in, h, w), weight (out, in, 3, 3), bias (out) or undefined; the
// result, in channels_last, is (n, out, h, w). x and its gradient are float or bfloat16, whatever autocast
// says; all else is float, the result too: of bfloat16 it is not rounded, what takes it is to. Operands in
// channels_last are not copied.
//
// By Winograd's tiles (conv3x3_inline.h): in float the error to double is within five times that of torch's
// sums (eight where the processor rounds products); in bfloat16 x and weight are rounded after they are
// transformed. Differentiable once, in all three. It uses as many threads as torch's operations would; sums
// over threads are in a fixed order, so that the same number of threads gives the same bits. Throws
// c10::Error for other tensors.
torch::Tensor conv3x3(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

// The same by given kernels, which must outlive the result's graph: T is float, double or Bf16, the type of
// x; with double all is double.
template <class T>
torch::Tensor conv3x3_by(const Conv3x3Kernels<T>& kernels, const torch::Tensor& x,
                         const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace lockstep
