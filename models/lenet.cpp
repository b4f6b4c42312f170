#include <lockstep/models/lenet.h>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <lockstep/models/cpu/kernels.h>
#include <lockstep/models/cpu/lenet/features.h>
#include <lockstep/models/cpu/lenet/head.h>
#include <lockstep/models/model_costs.h>
#include <lockstep/models/model_layer.h>

namespace lockstep {

namespace {

// On a CPU a step takes a third less time in channels_last, which every layer keeps. contiguous() would not
// help: with one channel both formats have the same layout, and only the strides tell which one is meant.
torch::Tensor in_fastest_format(const torch::Tensor& X) {
  if (!X.is_cpu()) return X;
  return torch::empty(X.sizes(), X.options(), torch::MemoryFormat::ChannelsLast).copy_(X);
}

// Both convolutional layers, (n, 800): by lockstep's kernels, or by torch's operations if `layers` is null.
torch::Tensor convolutions(const torch::Tensor& X, const Params& params, const LeNetLayers<float>* layers) {
  if (layers) return lenet_features<float>(X, params[0], params[1], params[2], params[3], *layers);
  auto h = torch::conv2d(in_fastest_format(X), params[0], params[1]);  // (n, 20, 26, 26)
  h = torch::avg_pool2d(torch::relu(h), 2, 2);                         // (n, 20, 13, 13)
  h = torch::conv2d(h, params[2], params[3]);                          // (n, 50, 9, 9)
  h = torch::avg_pool2d(torch::relu(h), 2, 2);  // (n, 50, 4, 4): the ninth row and column are dropped
  return h.flatten(1);
}

// Both linear layers, (n, 10).
torch::Tensor linear_layers(const torch::Tensor& features, const Params& params,
                            const LeNetLayers<float>* layers) {
  if (layers) return lenet_head<float>(features, params[4], params[5], params[6], params[7], *layers);
  const auto h = torch::relu(torch::mm(features, params[4]) + params[5]);  // (n, 128)
  return torch::mm(h, params[6]) + params[7];
}

const LeNetLayers<float>& lockstep_layers(Kernels kernels) {
  const auto& table = cpu_kernels<float>();
  return kernels == Kernels::kDirect ? *table.direct_lenet : *table.winograd_lenet;
}

constexpr int64_t kConv1Multiplications = 26 * 26 * 20 * (1 * 3 * 3);
constexpr int64_t kConv2Multiplications = 9 * 9 * 50 * (20 * 5 * 5);
constexpr int64_t kLinearWeights = 800 * 128 + 128 * 10;  // one multiplication each per row

// Looks at X only: lockstep's kernels, like torch's, refuse parameters of another type or device.
bool uses_lockstep_kernels(const torch::Tensor& X, Kernels kernels) {
  return lenet_has_lockstep_kernels(kernels, X.scalar_type(), X.device().type()) && lenet_features_take(X);
}

// Counts what torch's layers keep until the backward pass (a convolution's output until its ReLU has run, the
// ReLU's output until the end), and what exists at the widest point, the first layer's backward pass: the
// gradients of the ReLU's output and input, and oneDNN's copy with 20 channels padded to 32.
int64_t torch_activations_per_row() {
  constexpr int64_t kInput = 28 * 28;
  constexpr int64_t kConv1 = 20 * 26 * 26;
  constexpr int64_t kPool1 = 20 * 13 * 13;
  constexpr int64_t kConv2 = 50 * 9 * 9;
  constexpr int64_t kPool2 = 50 * 4 * 4;
  constexpr int64_t kLinear = 2 * LeNetSizes::kHidden;
  constexpr int64_t kKept = kInput + kConv1 + kPool1 + kConv2 + kPool2 + kLinear;
  constexpr int64_t kWidest = 2 * kConv1 + 32 * 26 * 26;
  return kKept + kWidest;
}

// The images, what LeNetKept has of them (signs are bytes), the features and their gradient, the hidden
// layer, and the logits.
int64_t lockstep_activations_per_row() {
  using Sizes = LeNetSizes;
  constexpr int64_t kSigns = (Sizes::kPooled1 + Sizes::kFeatures) / static_cast<int64_t>(sizeof(float));
  constexpr int64_t kFeatureLayers = Sizes::kImage + Sizes::kPooled1 + kSigns;
  constexpr int64_t kHead = 2 * Sizes::kFeatures + Sizes::kHidden + Sizes::kClasses;
  return Sizes::kImage + kFeatureLayers + kHead;
}

}  // namespace

torch::Tensor lenet_by(Kernels kernels, const torch::Tensor& X, const Params& params) {
  const auto* layers = uses_lockstep_kernels(X, kernels) ? &lockstep_layers(kernels) : nullptr;
  return linear_layers(convolutions(X, params, layers), params, layers);
}

torch::Tensor lenet(const torch::Tensor& X, const Params& params) {
  return lenet_by(Kernels::kAuto, X, params);
}

bool lenet_has_lockstep_kernels(Kernels kernels, torch::ScalarType dtype, torch::DeviceType device) {
  return kernels != Kernels::kTorch && dtype == torch::kFloat32 && device == torch::kCPU;
}

LeNetImpl::LeNetImpl(uint64_t seed, torch::ScalarType dtype, Kernels chosen) : kernels(chosen) {
  auto generator = at::detail::createCPUGenerator(seed);
  // Drawn in float for all dtypes, so that a double network starts from the same values.
  const auto weight = [&](const char* name, torch::IntArrayRef shape) {
    const auto normal = torch::randn(shape, generator, torch::TensorOptions(torch::kFloat32));
    return register_parameter(name, (normal * .01).to(dtype));
  };
  const auto bias = [&](const char* name, int64_t size) {
    return register_parameter(name, torch::zeros({size}, dtype));
  };
  W1 = weight("W1", {20, 1, 3, 3});
  b1 = bias("b1", 20);
  W2 = weight("W2", {50, 20, 5, 5});
  b2 = bias("b2", 50);
  W3 = weight("W3", {800, 128});
  b3 = bias("b3", 128);
  W4 = weight("W4", {128, 10});
  b4 = bias("b4", 10);
}

torch::Tensor LeNetImpl::forward(const torch::Tensor& X) { return lenet_by(kernels, X, parameters()); }

int64_t lenet_activations_per_row(bool lockstep_kernels) {
  return lockstep_kernels ? lockstep_activations_per_row() : torch_activations_per_row();
}

int64_t lenet_working_bytes(int64_t threads) {
  const auto& layers = lockstep_layers(Kernels::kAuto);
  const int64_t of_thread = layers.scratch + layers.sums + layers.head_scratch + kLinearWeights;
  return static_cast<int64_t>(sizeof(float)) * threads * of_thread;
}

std::vector<ModelLayer> LeNetImpl::layers() {
  const auto self = std::static_pointer_cast<LeNetImpl>(shared_from_this());
  const auto layers_for = [self](const torch::Tensor& X) {
    return uses_lockstep_kernels(X.detach(), self->kernels) ? &lockstep_layers(self->kernels) : nullptr;
  };
  return {{.name = "both convolutions, ReLU, pooling",
           .input = {1, 28, 28},
           .first = true,
           .forward_flops = 2 * (kConv1Multiplications + kConv2Multiplications),
           .backward_flops = 2 * (kConv1Multiplications + 2 * kConv2Multiplications),
           .forward = [=](const auto& X) { return convolutions(X, self->parameters(), layers_for(X)); }},
          {.name = "both linear layers",
           .input = {LeNetSizes::kFeatures},
           .forward_flops = 2 * kLinearWeights,
           .backward_flops = 4 * kLinearWeights,
           .forward = [=](const auto& X) { return linear_layers(X, self->parameters(), layers_for(X)); }}};
}

std::vector<ModelLayer> layers_of(LeNetImpl& net) { return net.layers(); }

int64_t lenet_training_flops_per_row() {
  return 2 * (3 * (kConv1Multiplications + kConv2Multiplications + kLinearWeights) - kConv1Multiplications);
}

}  // namespace lockstep
