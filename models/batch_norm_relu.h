// Batch normalisation in training mode, with the ReLU behind it and the residual between them, in as few
// passes over memory as there can be (batch_norm_kernels.h).
#pragma once

#include <torch/types.h>

#include <optional>

#include <lockstep/support/cpu_capability.h>

namespace lockstep {

// A batch normalisation's tensors, each (c) float on the device of its input.
struct FusedBatchNorm {
  torch::Tensor weight;
  torch::Tensor bias;
  torch::Tensor running_mean;  // follows the batch's, by `momentum`
  torch::Tensor running_var;
  // What the convolution before it would have added, undefined for nothing. The normalisation takes it away
  // again, so nothing is added to x; running_mean counts it. Its true gradient is 0: .grad stays as it was,
  // its post-accumulate hooks run.
  torch::Tensor conv_bias = {};
  // The result's and the residual's, if not x's: bfloat16 with an x of float, of which a processor rounds
  // nothing but the result (a GPU rounds x first).
  std::optional<torch::ScalarType> dtype = {};
  double momentum = .1;
  double eps = 1e-5;
  std::optional<CpuCapability> capability =
      {};  // whose kernels compute on a processor, if not cpu_capability()'s
};

// Whether fused_batch_norm_relu() makes results of this kind: float or bfloat16, on a GPU in a build with
// CUDA, on a processor with a multiple of 16 channels.
bool fused_batch_norm_available(torch::Device device, torch::ScalarType dtype, int64_t channels);

// relu(batch_norm(x) + residual), (n, c, h, w) in channels_last and `layer`'s dtype whatever autocast says; a
// residual is like it, undefined for none. Statistics are float; the result is rounded once. A torch
// operation as any other: differentiable in x, residual, weight and bias, on torch's current stream,
// repeatable to the last bit. The running statistics are changed at once; the counter of batches is the
// caller's. Throws c10::Error where x has less than two values a channel, as torch does, and for tensors that
// do not fit each other.
torch::Tensor fused_batch_norm_relu(const torch::Tensor& x, const FusedBatchNorm& layer,
                                    const torch::Tensor& residual = {});

}  // namespace lockstep
