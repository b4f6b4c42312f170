#include <lockstep/models/resnet18.h>

#include <ATen/autocast_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <fmt/format.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <string>

#include <lockstep/models/batch_norm_relu.h>
#include <lockstep/support/error.h>

namespace lockstep {

namespace {

using torch::nn::BatchNorm2dImpl;
using torch::nn::Conv2dImpl;
using torch::nn::LinearImpl;

constexpr int64_t kStages = 4;
constexpr int64_t kBlocksPerStage = 2;

// Padded so that stride 1 keeps the image's size.
std::shared_ptr<Conv2dImpl> make_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return std::make_shared<Conv2dImpl>(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2));
}

std::shared_ptr<BatchNorm2dImpl> make_batch_norm(int64_t channels) {
  return std::make_shared<BatchNorm2dImpl>(torch::nn::BatchNormOptions(channels));
}

// What a convolution of X computes in: autocast converts all but double.
torch::ScalarType computed_in(const torch::Tensor& X) {
  const auto device = X.device().type();
  const bool converted = at::autocast::is_autocast_enabled(device) && X.scalar_type() != torch::kFloat64;
  return converted ? at::autocast::get_autocast_dtype(device) : X.scalar_type();
}

// Whether the batch normalisation of a convolution of X is to be fused with what follows.
bool fuses(const LayerSettings& settings, const std::shared_ptr<BatchNorm2dImpl>& batch_norm,
           const torch::Tensor& X) {
  return settings.kernels == Kernels::kAuto && batch_norm && batch_norm->is_training() &&
         batch_norm->weight.scalar_type() == torch::kFloat32 &&
         fused_batch_norm_available(X.device(), computed_in(X));
}

enum class Bias { kAdded, kLeftOut };

torch::Tensor convolve(const Conv2dImpl& conv, const torch::Tensor& X, const LayerSettings& settings,
                       Bias bias = Bias::kAdded) {
  const auto& padding = std::get<torch::ExpandingArray<2>>(conv.options.padding());
  const auto added = bias == Bias::kAdded ? settings.shadows.of(conv.bias, X) : torch::Tensor();
  return at::conv2d(X, settings.shadows.of(conv.weight, X), added, *conv.options.stride(), *padding);
}

// relu(batch_norm(h + conv's bias) + residual), h being what conv has made without its bias.
torch::Tensor fused_relu(const Conv2dImpl& conv, BatchNorm2dImpl& batch_norm, const torch::Tensor& h,
                         const torch::Tensor& residual = {}) {
  batch_norm.num_batches_tracked.add_(1);
  return fused_batch_norm_relu(h,
                               {.weight = batch_norm.weight,
                                .bias = batch_norm.bias,
                                .running_mean = batch_norm.running_mean,
                                .running_var = batch_norm.running_var,
                                .conv_bias = conv.bias,
                                .momentum = *batch_norm.options.momentum(),
                                .eps = batch_norm.options.eps()},
                               residual);
}

// In place: nothing that made h needs it for its backward pass (a batch normalisation and a convolution keep
// their inputs).
torch::Tensor normalised_relu(const std::shared_ptr<BatchNorm2dImpl>& batch_norm, const torch::Tensor& h) {
  auto y = batch_norm ? batch_norm->forward(h) : h;
  return torch::relu_(y);
}

// contiguous() would leave alone a tensor with a dimension of size 1 that both formats lay out alike, and
// torch would go on taking its strides for the other format's.
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
  if (fuses(*settings, bn1, X)) {
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

ResNet18Impl::ResNet18Impl(const ResNet18Options& options) {
  check_options(options);
  settings->kernels = options.kernels;
  // The chapters' names are those of nested Sequentials: a layer's place is its name.
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
               ? fused_relu(*stem, *stem_bn, convolve(*stem, X, *settings, Bias::kLeftOut))
               : normalised_relu(stem_bn, convolve(*stem, X, *settings));  // (n, width, h, w)
  for (const auto& block : blocks) h = block->forward(h);
  h = h.mean({2, 3});  // (n, 8 width), from images of ceil(h / 8) x ceil(w / 8)
  const auto& shadows = settings->shadows;
  return at::linear(h, shadows.of(linear->weight, h), shadows.of(linear->bias, h));  // (n, classes)
}

void ResNet18Impl::use_shadow_weights(const std::vector<torch::Tensor>& shadows) {
  settings->shadows.use(parameters(), shadows);
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

int64_t resnet18_activations_per_row(const ResNet18Options& options, int64_t height, int64_t width) {
  // Kept for each convolution: what its batch normalisation starts from, and the ReLU's output. Normalising
  // and adding the shortcut happen in place of the latter, and without normalisation the former is not kept.
  const int64_t tensors = options.batch_norm ? 2 : 1;
  // Alive at once in a block's backward pass: the gradients of its output, of its shortcut, of a
  // convolution's output and input. Counted in each stage: an allocator finds little use for another stage's
  // sizes.
  constexpr int64_t kGradients = 4;
  int64_t channels = options.width;
  int64_t held = options.channels * height * width + tensors * channels * height * width;  // X, stem
  for (int64_t stage = 1; stage <= kStages; ++stage) {
    if (stage > 1) {
      channels *= 2;
      height = (height + 1) / 2;
      width = (width + 1) / 2;
    }
    held += (2 * kBlocksPerStage * tensors + kGradients) * channels * height * width;
  }
  return held + channels + options.classes;  // what the linear layer and the softmax start from
}

int64_t resnet18_training_flops_per_row(const ResNet18Options& options, int64_t height, int64_t width) {
  int64_t channels = options.width;
  const int64_t first = height * width * channels * options.channels * 9;  // multiplications
  int64_t forward = first;
  for (int64_t stage = 1; stage <= kStages; ++stage) {
    const int64_t inputs = channels;
    if (stage > 1) {
      channels *= 2;
      height = (height + 1) / 2;
      width = (width + 1) / 2;
    }
    const int64_t shortcut = stage > 1 ? inputs : 0;  // the 1x1 convolution of the stage's first block
    const int64_t others = (2 * kBlocksPerStage - 1) * channels * 9;
    forward += height * width * channels * (inputs * 9 + others + shortcut);
  }
  forward += channels * options.classes;
  return 2 * (3 * forward - first);
}

}  // namespace lockstep
