#include <lockstep/models/layers/conv_layers.h>

#include <ATen/autocast_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>

#include <optional>

#include <lockstep/models/layers/conv_choice.h>
#include <lockstep/models/layers/cpu/conv3x3/conv3x3.h>

namespace lockstep {
namespace {

using torch::nn::Conv2dImpl;

const torch::ExpandingArray<2>& padding_of(const Conv2dImpl& conv) {
  return std::get<torch::ExpandingArray<2>>(conv.options.padding());
}

// ReLU works in place: the operations before it keep their inputs for the backward pass, not y.
torch::Tensor by_torch(const NormPtr& norm, const torch::Tensor& h, const torch::Tensor& residual) {
  auto y = norm ? norm->forward(h) : h;
  if (residual.defined()) y.add_(residual);
  return torch::relu_(y);
}

// The kernels count batches in int64. Module::to(dtype) gives the counter that dtype: then it is counted
// here.
torch::Tensor counter_for_kernels(const BatchNorm2dImpl& norm) {
  const torch::NoGradGuard no_grad;
  const auto& batches = norm.num_batches_tracked;
  if (!batches.defined() || batches.scalar_type() == torch::kInt64) return batches;
  batches.add_(1);
  return {};
}

}  // namespace

ConvPtr make_conv(int64_t in, int64_t out, int64_t window, int64_t stride) {
  return std::make_shared<Conv2dImpl>(
      torch::nn::Conv2dOptions(in, out, window).stride(stride).padding(window / 2));
}

NormPtr make_batch_norm(int64_t channels) {
  return std::make_shared<BatchNorm2dImpl>(torch::nn::BatchNormOptions(channels));
}

// Returns true if this batch normalisation is fused with the operations after it. X: of the convolution
// before it, or its result.
bool ConvLayers::fuses(const NormPtr& norm, const torch::Tensor& X) const {
  return norm && norm->is_training() && fuses_batch_norm(kernels_, norm->weight, norm->exchange(), X);
}

bool ConvLayers::by_conv3x3(const Conv2dImpl& conv, const torch::Tensor& X, torch::ScalarType type) const {
  const auto& options = conv.options;
  const ConvSteps steps{*options.stride(), *padding_of(conv), *options.dilation(), options.groups()};
  return chooses_conv3x3(kernels_, conv.weight, steps, X, type);
}

torch::Tensor ConvLayers::convolve(const ConvPtr& conv, const NormPtr& norm, const torch::Tensor& X_in,
                                   Input input) const {
  const auto bias = fuses(norm, X_in) ? torch::Tensor() : conv->bias;
  const bool in_float = input == Input::kImages && kernels_ != Kernels::kTorch && X_in.is_cpu() &&
                        computed_in(X_in) == torch::kBFloat16;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> no_autocast;
  if (in_float) no_autocast.emplace(c10::DispatchKey::AutocastCPU);
  const auto X = in_float ? X_in.to(torch::kFloat32) : X_in;
  const auto type = computed_in(X);
  if (by_conv3x3(*conv, X, type)) return conv3x3(X.to(type), conv->weight, bias);
  return at::conv2d(X, bf16_weights_.of(conv->weight, X), bf16_weights_.of(bias, X), *conv->options.stride(),
                    *padding_of(*conv));
}

Shortcut ConvLayers::shortcut(const ConvPtr& conv, const NormPtr& norm, const torch::Tensor& X) const {
  const bool apart = fuses(norm, X) && fused_batch_norm_adds_residual_bias(X.device());
  return {convolve(conv, apart ? norm : nullptr, X), apart ? conv->bias : torch::Tensor()};
}

FusedBatchNorm ConvLayers::fused(const ConvPtr& conv, const NormPtr& norm, const torch::Tensor& h,
                                 const torch::Tensor& residual_bias) const {
  return {.weight = norm->weight,
          .bias = norm->bias,
          .running_mean = norm->running_mean,
          .running_var = norm->running_var,
          .conv_bias = conv->bias,
          .residual_bias = residual_bias,
          .num_batches_tracked = counter_for_kernels(*norm),
          .dtype = computed_in(h),
          .momentum = *norm->options.momentum(),
          .eps = norm->options.eps(),
          .exchange = norm->exchange(),
          .counters = &counters_};
}

torch::Tensor ConvLayers::norm_relu(const ConvPtr& conv, const NormPtr& norm, const torch::Tensor& h) const {
  if (!fuses(norm, h)) return by_torch(norm, h, {});
  return fused_batch_norm_relu(h, fused(conv, norm, h, {}));
}

TwoUses ConvLayers::norm_relu_for_two(const ConvPtr& conv, const NormPtr& norm, const torch::Tensor& h,
                                      const Shortcut& shortcut) const {
  const auto& residual = shortcut.values;
  if (!fuses(norm, h)) {
    const auto y = by_torch(norm, h, residual);
    return {y, y};
  }
  return fused_batch_norm_relu_for_two(h, fused(conv, norm, h, shortcut.bias),
                                       residual.defined() ? residual.to(computed_in(h)) : residual);
}

torch::Tensor ConvLayers::linear(const torch::nn::LinearImpl& layer, const torch::Tensor& X) const {
  return at::linear(X, bf16_weights_.of(layer.weight, X), bf16_weights_.of(layer.bias, X));
}

}  // namespace lockstep
