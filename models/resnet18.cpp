#include <lockstep/models/resnet18.h>

#include <fmt/format.h>

#include <string>

#include <lockstep/models/layers/channels_last.h>
#include <lockstep/models/layers/conv_layers.h>
#include <lockstep/support/error.h>

namespace lockstep {

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
                           std::shared_ptr<const ConvLayers> conv_layers)
    : layers(std::move(conv_layers)) {
  conv1 = register_module("conv1", make_conv(channels_in, channels_out, 3, stride));
  conv2 = register_module("conv2", make_conv(channels_out, channels_out, 3, 1));
  if (stride != 1) conv3 = register_module("conv3", make_conv(channels_in, channels_out, 1, stride));
  if (!batch_norm) return;
  bn1 = register_module("bn1", make_batch_norm(channels_out));
  bn2 = register_module("bn2", make_batch_norm(channels_out));
}

TwoUses ResidualImpl::forward(const TwoUses& X) {
  const auto h = layers->convolve(conv1, bn1, X.first);  // (n, out, h / stride, w / stride), as all below
  const auto Y = layers->norm_relu(conv1, bn1, h);
  const auto shortcut = conv3 ? layers->shortcut(conv3, bn2, X.second) : Shortcut{X.second};
  return layers->norm_relu_for_two(conv2, bn2, layers->convolve(conv2, bn2, Y), shortcut);
}

ResNet18Impl::ResNet18Impl(const ResNet18Options& options)
    : layers(std::make_shared<ConvLayers>(options.kernels)) {
  check_options(options);
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
          std::make_shared<ResidualImpl>(channels, out, halve ? 2 : 1, options.batch_norm, layers);
      blocks.push_back(sequence->register_module(std::to_string(i), block));
      channels = out;
    }
  }
  linear = std::make_shared<torch::nn::LinearImpl>(channels, options.classes);
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
  const auto images = layers->convolve(stem, stem_bn, X, Input::kImages);  // (n, width, h, w)
  auto h = layers->norm_relu_for_two(stem, stem_bn, images);
  for (const auto& block : blocks) h = block->forward(h);
  const auto pooled = h.first.mean({2, 3});  // (n, 8 width), from images of ceil(h / 8) x ceil(w / 8)
  return layers->linear(*linear, pooled);    // (n, classes)
}

void ResNet18Impl::use_bf16_weights(const std::vector<torch::Tensor>& bf16_weights) {
  layers->bf16_weights().use(parameters(), bf16_weights);
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
