// By which kernels a convolution and the batch normalisation after it are computed.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include <lockstep/support/batch_statistics.h>
#include <lockstep/support/kernels.h>

namespace lockstep {

// The dtype in which a layer of X computes: autocast converts all but double.
torch::ScalarType computed_in(const torch::Tensor& X);

// Returns true if fused_batch_norm_relu() takes a batch normalisation in training with this weight, which
// exchanges its statistics unless `exchange` is null. X: of the convolution before it, or its result.
bool fuses_batch_norm(Kernels kernels, const torch::Tensor& weight, const StatisticsExchange* exchange,
                      const torch::Tensor& X);

struct ConvSteps {
  torch::IntArrayRef stride, padding, dilation;
  int64_t groups = 1;
};

// Returns true if lockstep's kernels compute this convolution of X in this dtype. If that is bfloat16, its
// result is float: it is not rounded.
bool chooses_conv3x3(Kernels kernels, const torch::Tensor& weight, const ConvSteps& steps,
                     const torch::Tensor& X, torch::ScalarType type);

}  // namespace lockstep
