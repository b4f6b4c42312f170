// Runs the kernels of a fused batch normalisation on torch's tensors, without autograd.
#pragma once

#include <torch/types.h>

#include <lockstep/models/layers/batch_norm/batch_norm_relu.h>
#include <lockstep/models/layers/cpu/kernels.h>

namespace lockstep {

// Returns true if the kernels for GPUs compute on this device. Also true on a CPU in tests that emulate them
// there.
bool takes_gpu_kernels(torch::Device device);

// Returns the dtype of the result.
torch::ScalarType type_of_result(const torch::Tensor& x, const FusedBatchNorm& layer);

// Returns x in channels_last, at an address from which vectors can be loaded.
torch::Tensor aligned_channels_last(const torch::Tensor& x);

// The memory that the backward pass needs. Tensors (n, c, h, w) here and below are as aligned_channels_last()
// returns them; the others are (c), float.
struct KeptBatchNorm {
  torch::Tensor x = {};       // (n, c, h, w)
  torch::Tensor passed = {};  // where ReLU passes its input: `passed` or `mask` of batch_norm_layers.h
  torch::Tensor weight = {}, centre = {}, invstd = {};
  torch::Tensor arrived = {};  // counters, undefined on a CPU
};

// The backward pass reads dy and more_dy, and writes the others. more_dy, dresidual and dresidual_bias may be
// undefined.
struct BatchNormGradients {
  torch::Tensor dy = {}, more_dy = {}, dx = {}, dresidual = {};  // (n, c, h, w)
  torch::Tensor dweight = {}, dbias = {}, dresidual_bias = {};   // (c)
};

// Returns the result, (n, c, h, w). Reads kept.x and kept.weight, fills the rest. residual may be undefined.
// whole_rows becomes the number of values per channel in the whole batch where the layer has an exchange.
torch::Tensor run_batch_norm(KeptBatchNorm& kept, const FusedBatchNorm& layer, const torch::Tensor& residual,
                             const CpuKernels<float>& kernels, double& whole_rows);

// exchange: null if this replica has all rows that dx depends on, otherwise whole_rows has their number.
void run_batch_norm_backward(const KeptBatchNorm& kept, const BatchNormGradients& gradients,
                             const CpuKernels<float>& kernels, StatisticsExchange* exchange,
                             double whole_rows);

}  // namespace lockstep
