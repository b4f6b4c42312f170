#include <lockstep/models/resnet18.h>

#include <ATen/autocast_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <fmt/format.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <string>

#include <lockstep/models/batch_norm.h>
#include <lockstep/models/batch_norm/batch_norm_relu.h>
#include <lockstep/models/bf16_weights.h>
#include <lockstep/models/cpu/conv3x3/conv3x3.h>
#include <lockstep/models/model_layer.h>
#include <lockstep/support/error.h>

namespace lockstep {

// Shared by all layers of a network.
struct LayerSettings {
  Kernels kernels = Kernels::kAuto;
  Bf16Weights bf16_weights;
};

namespace {

using torch::nn::Conv2dImpl;
using torch::nn::LinearImpl;

// Its padding keeps the image size with stride 1.
std::shared_ptr<Conv2dImpl> make_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return std::make_shared<Conv2dImpl>(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2));
}

std::shared_ptr<BatchNorm2dImpl> make_batch_norm(int64_t channels) {
  return std::make_shared<BatchNorm2dImpl>(torch::nn::BatchNormOptions(channels));
}

// The dtype in which a convolution of X computes: autocast converts all but double.
torch::ScalarType computed_in(const torch::Tensor& X) {
  const auto device = X.device().type();
  const bool converted = at::autocast::is_autocast_enabled(device) && X.scalar_type() != torch::kFloat64;
  return converted ? at::autocast::get_autocast_dtype(device) : X.scalar_type();
}

// Returns true if this batch normalisation after a convolution of X is fused with the operations after it.
bool fuses(const LayerSettings& settings, const std::shared_ptr<BatchNorm2dImpl>& batch_norm,
           const torch::Tensor& X) {
  return settings.kernels != Kernels::kTorch && batch_norm && batch_norm->is_training() &&
         (!batch_norm->exchange() || (X.is_cpu() && X.size(0) > 0)) &&
         batch_norm->weight.scalar_type() == torch::kFloat32 &&
         fused_batch_norm_available(X.device(), computed_in(X), batch_norm->weight.size(0));
}

enum class Bias { kAdded, kLeftOut };

// The only convolutions that conv3x3() computes.
bool has_stride_1_and_border_1(const torch::nn::detail::ConvNdOptions<2>& options) {
  const auto& padding = std::get<torch::ExpandingArray<2>>(options.padding());
  const auto all = [](const torch::ExpandingArray<2>& values, int64_t value) {
    return values->at(0) == value && values->at(1) == value;
  };
  return all(options.stride(), 1) && all(padding, 1) && all(options.dilation(), 1) && options.groups() == 1;
}

bool by_conv3x3(const Conv2dImpl& conv, const torch::Tensor& X, torch::ScalarType type,
                const LayerSettings& settings) {
  return settings.kernels == Kernels::kAuto && has_stride_1_and_border_1(conv.options) &&
         conv3x3_takes(X, type, conv.weight);
}

torch::Tensor convolve(const Conv2dImpl& conv, const torch::Tensor& X, const LayerSettings& settings,
                       Bias bias = Bias::kAdded) {
  const auto added = bias == Bias::kAdded ? conv.bias : torch::Tensor();
  const auto type = computed_in(X);
  if (by_conv3x3(conv, X, type, settings)) return conv3x3(X.to(type), conv.weight, added);
  const auto& padding = std::get<torch::ExpandingArray<2>>(conv.options.padding());
  return at::conv2d(X, settings.bf16_weights.of(conv.weight, X), settings.bf16_weights.of(added, X),
                    *conv.options.stride(), *padding);
}

// The first convolution. On a CPU it is computed in float even under autocast: every layer carries its
// rounding on, which was a third of the squared error of the logits, for a thousandth of the network's
// multiplications.
torch::Tensor convolve_images(const Conv2dImpl& conv, const torch::Tensor& X, const LayerSettings& settings,
                              Bias bias = Bias::kAdded) {
  if (settings.kernels == Kernels::kTorch || !X.is_cpu() || computed_in(X) != torch::kBFloat16)
    return convolve(conv, X, settings, bias);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  return convolve(conv, X.to(torch::kFloat32), settings, bias);
}

// relu(batch_norm(h + conv's bias) + residual), where h is conv's output without its bias.
torch::Tensor fused_relu(const Conv2dImpl& conv, BatchNorm2dImpl& batch_norm, const torch::Tensor& h,
                         const torch::Tensor& residual = {}) {
  batch_norm.num_batches_tracked.add_(1);
  const auto type = computed_in(h);
  return fused_batch_norm_relu(h,
                               {.weight = batch_norm.weight,
                                .bias = batch_norm.bias,
                                .running_mean = batch_norm.running_mean,
                                .running_var = batch_norm.running_var,
                                .conv_bias = conv.bias,
                                .dtype = type,
                                .momentum = *batch_norm.options.momentum(),
                                .eps = batch_norm.options.eps(),
                                .exchange = batch_norm.exchange()},
                               residual.defined() ? residual.to(type) : residual);
}

int64_t halved(int64_t size, int64_t stride) { return (size + stride - 1) / stride; }

enum class Input { kImages, kActivations };

// The layer of a convolution, for images of height x width. batch_norm normalises the result; null for none.
ModelLayer layer_of(const std::shared_ptr<Conv2dImpl>& conv,
                    const std::shared_ptr<BatchNorm2dImpl>& batch_norm,
                    std::shared_ptr<const LayerSettings> settings, int64_t height, int64_t width,
                    Input input = Input::kActivations) {
  const auto& options = conv->options;
  const int64_t in = options.in_channels(), out = options.out_channels(),
                window = options.kernel_size()->at(0);
  const int64_t stride = options.stride()->at(0);
  const int64_t flops = 2 * halved(height, stride) * halved(width, stride) * in * out * window * window;
  return {.name = fmt::format("{0} x {0}{1}, {2} -> {3}, {4} x {5}", window,
                              stride > 1 ? fmt::format(" / {}", stride) : "", in, out, height, width),
          .input = {in, height, width},
          .first = input == Input::kImages,
          .forward_flops = flops,
          .backward_flops = input == Input::kImages ? flops : 2 * flops,
          .forward = [=](const auto& X) {
            const auto run = input == Input::kImages ? convolve_images : convolve;
            return run(*conv, X, *settings, fuses(*settings, batch_norm, X) ? Bias::kLeftOut : Bias::kAdded);
          }};
}

// ReLU works in place: the operations before it keep their inputs for the backward pass, not h.
torch::Tensor normalised_relu(const std::shared_ptr<BatchNorm2dImpl>& batch_norm, const torch::Tensor& h) {
  auto y = batch_norm ? batch_norm->forward(h) : h;
  return torch::relu_(y);
}

// The layer of a batch normalisation and its ReLU, after conv of `input`.
ModelLayer layer_of(const std::shared_ptr<BatchNorm2dImpl>& batch_norm,
                    const std::shared_ptr<Conv2dImpl>& conv, std::shared_ptr<const LayerSettings> settings,
                    int64_t height, int64_t width, Input input = Input::kActivations) {
  const int64_t channels = batch_norm->weight.size(0);
  const auto X_of_conv = torch::empty({1, conv->options.in_channels(), height, width});
  const bool unrounded = input == Input::kImages ? settings->kernels != Kernels::kTorch
                                                 : by_conv3x3(*conv, X_of_conv, torch::kBFloat16, *settings);
  return {.name = fmt::format("batch norm, ReLU, {}, {} x {}", channels, height, width),
          .input = {channels, height, width},
          .unrounded = unrounded,
          .forward = [=](const auto& X) {
            return fuses(*settings, batch_norm, X) ? fused_relu(*conv, *batch_norm, X)
                                                   : normalised_relu(batch_norm, X);
          }};
}

// contiguous() would return the same tensor if a dimension of size 1 makes both formats lie alike, and torch
// would still take its strides for the other format's.
torch::Tensor channels_last_copy(const torch::Tensor& weight) {
  return torch::empty(weight.sizes(), weight.options(), torch::MemoryFormat::ChannelsLast).copy_(weight);
}

}  // namespace

void check_options(const ResNet18Options& options) {
  for (const auto& [what, size] :
       {std::pair("channels", options.channels), std::pair("classes", options.classes),
        std::pair("width", options.width)}) {
    if (size < 1) {
      throw UsageError(
          fmt::format("resnet18 with {} = {} cannot be built, at least 1 is needed", what, size));
    }
  }
  if (!torch::isFloatingType(options.dtype)) {
    throw UsageError(fmt::format("resnet18 of {} cannot be built, its weights need a floating point type",
                                 torch::toString(options.dtype)));
  }
}

ResidualImpl::ResidualImpl(int64_t channels_in, int64_t channels_out, int64_t stride, bool batch_norm,
                           std::shared_ptr<const LayerSettings> layer_settings)
    : settings(std::move(layer_settings)) {
  conv1 = register_module("conv1", make_conv(channels_in, channels_out, 3, stride));
  conv2 = register_module("conv2", make_conv(channels_out, channels_out, 3, 1));
  if (stride != 1) conv3 = register_module("conv3", make_conv(channels_in, channels_out, 1, stride));
  if (!batch_norm) return;
  bn1 = register_module("bn1", make_batch_norm(channels_out));
  bn2 = register_module("bn2", make_batch_norm(channels_out));
}

torch::Tensor ResidualImpl::forward(const torch::Tensor& X) {
  const auto shortcut = [&] { return conv3 ? convolve(*conv3, X, *settings) : X; };
  if (fuses(*settings, bn1, X) && fuses(*settings, bn2, X)) {
    auto h =
        convolve(*conv1, X, *settings, Bias::kLeftOut);  // (n, out, h / stride, w / stride), as all below
    h = fused_relu(*conv1, *bn1, h);
    h = convolve(*conv2, h, *settings, Bias::kLeftOut);
    return fused_relu(*conv2, *bn2, h, shortcut());
  }
  auto h = normalised_relu(bn1, convolve(*conv1, X, *settings));
  h = convolve(*conv2, h, *settings);
  if (bn2) h = bn2->forward(h);
  h.add_(shortcut());
  return torch::relu_(h);
}

std::vector<ModelLayer> ResidualImpl::layers(int64_t height, int64_t width) const {
  const int64_t stride = conv1->options.stride()->at(0);
  const int64_t halved_height = halved(height, stride), halved_width = halved(width, stride);
  std::vector<ModelLayer> all{layer_of(conv1, bn1, settings, height, width),
                              layer_of(conv2, bn2, settings, halved_height, halved_width)};
  if (conv3) all.push_back(layer_of(conv3, nullptr, settings, height, width));
  if (bn1) all.push_back(layer_of(bn1, conv1, settings, halved_height, halved_width));
  if (bn2) all.push_back(layer_of(bn2, conv2, settings, halved_height, halved_width));
  return all;
}

ResNet18Impl::ResNet18Impl(const ResNet18Options& options) : settings(std::make_shared<LayerSettings>()) {
  check_options(options);
  settings->kernels = options.kernels;
  // Names are those of nested Sequentials in the chapters: the name of a layer is its place.
  const SeededGenerator generator(options.seed);
  stem = register_module("0", make_conv(options.channels, options.width, 3, 1));
  if (options.batch_norm) stem_bn = register_module("1", make_batch_norm(options.width));

  int64_t channels = options.width;
  for (int64_t stage = 1; stage <= kStages; ++stage) {
    const auto sequence = register_module(fmt::format("resnet_block{}", stage), std::make_shared<Module>());
    for (int64_t i = 0; i < kBlocksPerStage; ++i) {
      const bool halve = stage > 1 && i == 0;
      const int64_t out = halve ? 2 * channels : channels;
      const auto block =
          std::make_shared<ResidualImpl>(channels, out, halve ? 2 : 1, options.batch_norm, settings);
      blocks.push_back(sequence->register_module(std::to_string(i), block));
      channels = out;
    }
  }
  linear = std::make_shared<LinearImpl>(channels, options.classes);
  register_module("fc", std::make_shared<Module>())->register_module("1", linear);

  initialize(*this, options.initialization);
  ResNet18Impl::to(options.dtype);
  const torch::NoGradGuard no_grad;
  for (auto& param : parameters()) {
    if (param.dim() == 4) param.set_data(channels_last_copy(param));
  }
}

torch::Tensor ResNet18Impl::forward(const torch::Tensor& X_in) {
  const auto X = X_in.contiguous(torch::MemoryFormat::ChannelsLast);
  auto h = fuses(*settings, stem_bn, X)
               ? fused_relu(*stem, *stem_bn, convolve_images(*stem, X, *settings, Bias::kLeftOut))
               : normalised_relu(stem_bn, convolve_images(*stem, X, *settings));  // (n, width, h, w)
  for (const auto& block : blocks) h = block->forward(h);
  h = h.mean({2, 3});  // (n, 8 width), from images of ceil(h / 8) x ceil(w / 8)
  const auto& bf16_weights = settings->bf16_weights;
  return at::linear(h, bf16_weights.of(linear->weight, h), bf16_weights.of(linear->bias, h));  // (n, classes)
}

std::vector<ModelLayer> ResNet18Impl::layers(int64_t height, int64_t width) const {
  std::vector<ModelLayer> all;
  const auto add = [&](ModelLayer layer) {
    const auto same =
        std::find_if(all.begin(), all.end(), [&](const auto& other) { return other.name == layer.name; });
    if (same == all.end()) return all.push_back(std::move(layer));
    ++same->count;
    same->unrounded += layer.unrounded;
  };
  add(layer_of(stem, stem_bn, settings, height, width, Input::kImages));
  if (stem_bn) add(layer_of(stem_bn, stem, settings, height, width, Input::kImages));
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (auto& layer : blocks[i]->layers(height, width)) add(std::move(layer));
    if (i % kBlocksPerStage == 0 && i > 0) {
      height = halved(height, 2);
      width = halved(width, 2);
    }
  }
  const int64_t in = linear->options.in_features(), out = linear->options.out_features();
  add({.name = fmt::format("linear, {} -> {}", in, out),
       .input = {in},
       .forward_flops = 2 * in * out,
       .backward_flops = 4 * in * out,
       .forward = [layer = linear](const auto& X) { return layer->forward(X); }});
  return all;
}

std::vector<ModelLayer> layers_of(const ResNet18Impl& net, int64_t height, int64_t width) {
  return net.layers(height, width);
}

void ResNet18Impl::use_bf16_weights(const std::vector<torch::Tensor>& bf16_weights) {
  settings->bf16_weights.use(parameters(), bf16_weights);
}

void ResNet18Impl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, non_blocking);
  to(dtype, non_blocking);
}

void ResNet18Impl::to(torch::Dtype dtype, bool non_blocking) {
  const auto convert = [&](torch::Tensor tensor) {
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(dtype, non_blocking));
  };
  for (const auto& param : parameters()) convert(param);
  for (const auto& buffer : buffers()) convert(buffer);
}

}  // namespace lockstep
