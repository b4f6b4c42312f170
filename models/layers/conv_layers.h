// The convolutions of a network, and what follows each: batch normalisation, the addition of a residual,
// ReLU. A network says what is computed, this class by which kernels and in which dtype.
#pragma once

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <memory>

#include <lockstep/models/batch_norm.h>
#include <lockstep/models/layers/batch_norm/batch_norm_relu.h>
#include <lockstep/models/layers/bf16_weights.h>
#include <lockstep/support/kernels.h>

namespace lockstep {

using ConvPtr = std::shared_ptr<torch::nn::Conv2dImpl>;
using NormPtr = std::shared_ptr<BatchNorm2dImpl>;  // null where a network has none

// A square convolution, whose padding keeps the image size with stride 1.
ConvPtr make_conv(int64_t in, int64_t out, int64_t window, int64_t stride);
NormPtr make_batch_norm(int64_t channels);

// On a CPU a convolution of images is computed in float even under autocast: every layer carries its rounding
// on, which was a third of the squared error of ResNet-18's logits, for a thousandth of its multiplications.
enum class Input { kImages, kActivations };

// The values that a residual block adds to its last batch normalisation.
struct Shortcut {
  torch::Tensor values = {};  // undefined for none
  torch::Tensor bias = {};    // (c), is added to `values` with them; undefined for none
};

// Shared by all layers of a network.
class ConvLayers {
 public:
  explicit ConvLayers(Kernels kernels) : kernels_(kernels) {}

  // Returns conv(X), without its bias if `norm`, which follows, is fused with what comes after it.
  torch::Tensor convolve(const ConvPtr& conv, const NormPtr& norm, const torch::Tensor& X,
                         Input input = Input::kActivations) const;

  // Returns conv(X) for the block that ends with this norm.
  Shortcut shortcut(const ConvPtr& conv, const NormPtr& norm, const torch::Tensor& X) const;

  // Returns relu(norm(h)). h: what convolve() returns for conv and norm.
  torch::Tensor norm_relu(const ConvPtr& conv, const NormPtr& norm, const torch::Tensor& h) const;

  // Returns relu(norm(h) + shortcut) for the two uses that a residual block has for its input.
  TwoUses norm_relu_for_two(const ConvPtr& conv, const NormPtr& norm, const torch::Tensor& h,
                            const Shortcut& shortcut = {}) const;

  torch::Tensor linear(const torch::nn::LinearImpl& layer, const torch::Tensor& X) const;

  // Returns true if lockstep's kernels compute this convolution of X in this dtype. If that is bfloat16, its
  // result is float: it is not rounded.
  bool by_conv3x3(const torch::nn::Conv2dImpl& conv, const torch::Tensor& X, torch::ScalarType type) const;

  Kernels kernels() const { return kernels_; }
  Bf16Weights& bf16_weights() { return bf16_weights_; }

 private:
  bool fuses(const NormPtr& norm, const torch::Tensor& X) const;
  FusedBatchNorm fused(const ConvPtr& conv, const NormPtr& norm, const torch::Tensor& h,
                       const torch::Tensor& residual_bias) const;

  const Kernels kernels_;
  Bf16Weights bf16_weights_;
  mutable BatchNormCounters counters_;
};

}  // namespace lockstep
