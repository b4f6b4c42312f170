#include <lockstep/models/costs.h>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <lockstep/models/layers/channels_last.h>
#include <lockstep/models/layers/conv_layers.h>
#include <lockstep/models/layers/cpu/conv3x3/conv3x3.h>
#include <lockstep/models/layers/lenet_layers.h>
#include <lockstep/models/lenet.h>

namespace lockstep {
namespace {

constexpr int64_t kHidden = LeNetSizes::kHidden;

// The layers of LeNet for a row of this shape: pixels of a channel, and multiplications.
struct LeNetLayerSizes {
  explicit LeNetLayerSizes(const LeNetShape& shape)
      : image(shape.channels * shape.height * shape.width),
        conv1((shape.height - 2) * (shape.width - 2)),
        pool1(((shape.height - 2) / 2) * ((shape.width - 2) / 2)),
        conv2(((shape.height - 2) / 2 - 4) * ((shape.width - 2) / 2 - 4)),
        features(shape.features()),
        conv1_multiplications(conv1 * 20 * (shape.channels * 3 * 3)),
        conv2_multiplications(conv2 * 50 * (20 * 5 * 5)),
        linear_weights(features * kHidden + kHidden * shape.classes) {}

  int64_t image, conv1, pool1, conv2, features;
  int64_t conv1_multiplications, conv2_multiplications, linear_weights;
};

// Counts what torch's layers keep until the backward pass (a convolution's output until its ReLU has run, the
// ReLU's output until the end), and what exists at the widest point, the first layer's backward pass: the
// gradients of the ReLU's output and input, and oneDNN's copy with 20 channels padded to 32.
int64_t lenet_activations_by_torch(const LeNetLayerSizes& sizes) {
  const int64_t kept =
      sizes.image + 20 * (sizes.conv1 + sizes.pool1) + 50 * sizes.conv2 + sizes.features + 2 * kHidden;
  const int64_t widest = 2 * 20 * sizes.conv1 + 32 * sizes.conv1;
  return kept + widest;
}

// The images, what LeNetKept has of them (signs are bytes), the features and their gradient, the hidden
// layer, and the logits.
int64_t lenet_activations_by_lockstep() {
  using Sizes = LeNetSizes;
  constexpr int64_t kSigns = (Sizes::kPooled1 + Sizes::kFeatures) / static_cast<int64_t>(sizeof(float));
  constexpr int64_t kFeatureLayers = Sizes::kImage + Sizes::kPooled1 + kSigns;
  constexpr int64_t kHead = 2 * Sizes::kFeatures + Sizes::kHidden + Sizes::kClasses;
  return Sizes::kImage + kFeatureLayers + kHead;
}

int64_t lenet_working_bytes(int64_t threads) {
  const auto& layers = *cpu_kernels<float>().winograd_lenet;
  const int64_t of_thread =
      layers.scratch + layers.sums + layers.head_scratch + LeNetLayerSizes(LeNetShape{}).linear_weights;
  return static_cast<int64_t>(sizeof(float)) * threads * of_thread;
}

// A convolution of ResNet-18. height and width: of the images that it takes.
struct ConvSize {
  int64_t in = 0, out = 0, window = 3, stride = 1, height = 0, width = 0;

  int64_t height_out() const { return (height + stride - 1) / stride; }
  int64_t width_out() const { return (width + stride - 1) / stride; }
  int64_t elements_out() const { return out * height_out() * width_out(); }
  int64_t flops() const { return 2 * elements_out() * in * window * window; }
};

// The convolutions of ResNet-18: the first one alone, then those of each residual block. A batch
// normalisation follows each but those of 1 x 1, if the network has any.
std::vector<std::vector<ConvSize>> resnet18_convolutions(const ResNet18Options& options, int64_t height,
                                                         int64_t width) {
  std::vector<std::vector<ConvSize>> blocks{
      {{.in = options.channels, .out = options.width, .height = height, .width = width}}};
  int64_t channels = options.width;
  for (int64_t block = 0; block < kStages * kBlocksPerStage; ++block) {
    const bool halve = block > 0 && block % kBlocksPerStage == 0;
    const ConvSize conv1{.in = channels,
                         .out = halve ? 2 * channels : channels,
                         .stride = halve ? 2 : 1,
                         .height = height,
                         .width = width};
    channels = conv1.out;
    height = conv1.height_out();
    width = conv1.width_out();
    blocks.push_back({conv1, {.in = channels, .out = channels, .height = height, .width = width}});
    if (!halve) continue;
    auto conv3 = conv1;
    conv3.window = 1;
    blocks.back().push_back(conv3);
  }
  return blocks;
}

int64_t features_of(const ResNet18Options& options) { return options.width << (kStages - 1); }

// Returns true if the result of a convolution of activations stays float under autocast to bfloat16:
// convolution sums that a batch normalisation takes unrounded.
bool stays_float(const ConvSize& conv, const ResNet18Options& options) {
  return options.kernels == Kernels::kAuto && fast_bf16_kernels() && conv.window == 3 && conv.stride == 1 &&
         conv.out % Conv3x3Shape::kChannels == 0;
}

// A convolution with its batch normalisation, as in the network.
struct TimedConv {
  std::shared_ptr<const ConvLayers> layers;
  ConvPtr conv;
  NormPtr norm;
  ConvSize size;
  Input input;
};

TimedConv timed_conv(const std::shared_ptr<const ConvLayers>& layers, const ResNet18Options& options,
                     const ConvSize& size, Input input) {
  TimedConv timed{.layers = layers,
                  .conv = make_conv(size.in, size.out, size.window, size.stride),
                  .norm = options.batch_norm && size.window == 3 ? make_batch_norm(size.out) : nullptr,
                  .size = size,
                  .input = input};
  timed.conv->to(options.dtype);
  timed.conv->weight.set_data(channels_last_copy(timed.conv->weight.detach()));
  if (timed.norm) timed.norm->to(options.dtype);
  return timed;
}

ModelLayer conv_layer(const TimedConv& timed) {
  const auto& size = timed.size;
  const bool first = timed.input == Input::kImages;
  return {.name = fmt::format("{0} x {0}{1}, {2} -> {3}, {4} x {5}", size.window,
                              size.stride > 1 ? fmt::format(" / {}", size.stride) : "", size.in, size.out,
                              size.height, size.width),
          .input = {size.in, size.height, size.width},
          .first = first,
          .forward_flops = size.flops(),
          .backward_flops = first ? size.flops() : 2 * size.flops(),
          .forward = [=](const auto& X) {
            return timed.layers->convolve(timed.conv, timed.norm, X, timed.input);
          }};
}

ModelLayer norm_layer(const TimedConv& timed) {
  const auto& size = timed.size;
  const auto X_of_conv = torch::empty({1, size.in, size.height, size.width});
  const bool unrounded = timed.input == Input::kImages
                             ? timed.layers->kernels() != Kernels::kTorch
                             : timed.layers->by_conv3x3(*timed.conv, X_of_conv, torch::kBFloat16);
  return {.name = fmt::format("batch norm, ReLU, {}, {} x {}", size.out, size.height_out(), size.width_out()),
          .input = {size.out, size.height_out(), size.width_out()},
          .unrounded = unrounded,
          .forward = [=](const auto& h) { return timed.layers->norm_relu(timed.conv, timed.norm, h); }};
}

}  // namespace

LeNetShape shape_of_lenet(const ModelSpec& spec) {
  return {.channels = spec.channels, .height = spec.height, .width = spec.width, .classes = spec.classes};
}

ModelCosts lenet_costs(const ModelSpec& spec, torch::DeviceType device, int64_t threads) {
  const auto shape = shape_of_lenet(spec);
  const LeNetLayerSizes sizes(shape);
  ModelCosts costs;
  costs.flops = 2 * (3 * (sizes.conv1_multiplications + sizes.conv2_multiplications + sizes.linear_weights) -
                     sizes.conv1_multiplications);
  if (!shape.has_kernels() || !lenet_has_kernels(spec.kernels, spec.dtype, device)) {
    costs.activations = lenet_activations_by_torch(sizes);
    return costs;
  }
  costs.activations = costs.floats = lenet_activations_by_lockstep();
  costs.working_bytes = lenet_working_bytes(threads);
  return costs;
}

std::vector<ModelLayer> lenet_layers(const ModelSpec& spec) {
  const auto shape = shape_of_lenet(spec);
  const LeNetLayerSizes sizes(shape);
  const auto kernels = shape.has_kernels() ? spec.kernels : Kernels::kTorch;
  const auto params = LeNet(spec.seed, spec.dtype, kernels, shape)->parameters();
  const auto by = [kernels](const torch::Tensor& X) { return lenet_kernels(kernels, X.detach()); };
  return {{.name = "both convolutions, ReLU, pooling",
           .input = {shape.channels, shape.height, shape.width},
           .first = true,
           .forward_flops = 2 * (sizes.conv1_multiplications + sizes.conv2_multiplications),
           .backward_flops = 2 * (sizes.conv1_multiplications + 2 * sizes.conv2_multiplications),
           .forward = [=](const auto& X) { return lenet_convolutions(X, params, by(X)); }},
          {.name = "both linear layers",
           .input = {sizes.features},
           .forward_flops = 2 * sizes.linear_weights,
           .backward_flops = 4 * sizes.linear_weights,
           .forward = [=](const auto& X) { return lenet_linear_layers(X, params, by(X)); }}};
}

ModelCosts resnet18_costs(const ResNet18Options& options, torch::DeviceType device, int64_t threads,
                          int64_t height, int64_t width) {
  const bool float_on_cpu = device == torch::kCPU && options.dtype == torch::kFloat32;
  const auto blocks = resnet18_convolutions(options, height, width);
  const auto& first = blocks.front().front();
  const int64_t features = features_of(options);
  // Kept for each convolution: the input of its batch normalisation, and the ReLU's output. Normalising and
  // adding the shortcut happen in place of the latter. Without normalisation the former is not kept.
  const int64_t kept = options.batch_norm ? 2 : 1;
  // Held at once in a block's backward pass: the gradients of its output, of its shortcut, of a convolution's
  // output and of its input. Counted in the stage where they are largest.
  constexpr int64_t kGradients = 4;
  int64_t gradients = 0;
  ModelCosts costs;
  costs.activations = options.channels * height * width;
  costs.flops = 3 * 2 * features * options.classes - first.flops();
  for (const auto& block : blocks) {
    for (const auto& conv : block) {
      costs.flops += 3 * conv.flops();
      if (conv.window == 1) continue;  // its result is added in place
      costs.activations += kept * conv.elements_out();
      gradients = std::max(gradients, kGradients * conv.elements_out());
      const bool is_float = &conv == &first ? options.kernels != Kernels::kTorch : stays_float(conv, options);
      if (float_on_cpu && is_float) costs.floats += conv.elements_out();
    }
  }
  costs.activations += gradients + features + options.classes;  // the linear layer and the softmax
  const bool by_conv3x3 =
      float_on_cpu && options.kernels == Kernels::kAuto && features % Conv3x3Shape::kChannels == 0;
  if (by_conv3x3) {
    costs.working_bytes = conv3x3_bytes({.height = 4, .width = 4, .in = features, .out = features}, threads);
  }
  return costs;
}

std::vector<ModelLayer> resnet18_layers(const ResNet18Options& options, int64_t height, int64_t width) {
  std::vector<ModelLayer> all;
  const auto add = [&](ModelLayer layer) {
    const auto same =
        std::find_if(all.begin(), all.end(), [&](const auto& other) { return other.name == layer.name; });
    if (same == all.end()) return all.push_back(std::move(layer));
    ++same->count;
    same->unrounded += layer.unrounded;
  };
  const SeededGenerator generator(options.seed);
  const torch::NoGradGuard no_grad;
  const auto layers = std::make_shared<const ConvLayers>(options.kernels);
  auto input = Input::kImages;
  for (const auto& block : resnet18_convolutions(options, height, width)) {
    std::vector<TimedConv> timed;
    for (const auto& size : block) timed.push_back(timed_conv(layers, options, size, input));
    for (const auto& conv : timed) add(conv_layer(conv));
    for (const auto& conv : timed) {
      if (conv.norm) add(norm_layer(conv));
    }
    input = Input::kActivations;
  }
  const int64_t in = features_of(options), out = options.classes;
  const auto linear = std::make_shared<torch::nn::LinearImpl>(in, out);
  linear->to(options.dtype);
  add({.name = fmt::format("linear, {} -> {}", in, out),
       .input = {in},
       .forward_flops = 2 * in * out,
       .backward_flops = 4 * in * out,
       .forward = [=](const auto& X) { return linear->forward(X); }});
  return all;
}

}  // namespace lockstep
