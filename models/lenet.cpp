#include <lockstep/models/lenet.h>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <lockstep/models/cpu/kernels.h>
#include <lockstep/models/cpu/lenet_features.h>
#include <lockstep/models/cpu/lenet_head.h>

namespace lockstep {

namespace {

// On a processor a step takes a third less time in channels_last, which every layer passes on. (contiguous()
// would not do: with one channel both formats lay out alike, and only the strides tell which is meant.)
torch::Tensor in_fastest_format(const torch::Tensor& X) {
  if (!X.is_cpu()) return X;
  return torch::empty(X.sizes(), X.options(), torch::MemoryFormat::ChannelsLast).copy_(X);
}

// By our kernels, or by torch's operations where there are none: both convolutional layers, (n, 800), ...
torch::Tensor convolutions(const torch::Tensor& X, const Params& params, const LeNetLayers<float>* own) {
  if (own) return lenet_features<float>(X, params[0], params[1], params[2], params[3], *own);
  auto h = torch::conv2d(in_fastest_format(X), params[0], params[1]);  // (n, 20, 26, 26)
  h = torch::avg_pool2d(torch::relu(h), 2, 2);                         // (n, 20, 13, 13)
  h = torch::conv2d(h, params[2], params[3]);                          // (n, 50, 9, 9)
  h = torch::avg_pool2d(torch::relu(h), 2, 2);  // (n, 50, 4, 4): the ninth row and column are dropped
  return h.flatten(1);
}

// ... and both linear ones, (n, 10).
torch::Tensor linear_layers(const torch::Tensor& features, const Params& params,
                            const LeNetLayers<float>* own) {
  if (own) return lenet_head<float>(features, params[4], params[5], params[6], params[7], *own);
  const auto h = torch::relu(torch::mm(features, params[4]) + params[5]);  // (n, 128)
  return torch::mm(h, params[6]) + params[7];
}

const LeNetLayers<float>& own_layers(Kernels kernels) {
  const auto& own = cpu_kernels<float>();
  return kernels == Kernels::kDirect ? *own.direct_lenet : *own.winograd_lenet;
}

constexpr int64_t kFirstProducts = 26 * 26 * 20 * (1 * 3 * 3);
constexpr int64_t kSecondProducts = 9 * 9 * 50 * (20 * 5 * 5);
constexpr int64_t kLinearProducts = 800 * 128 + 128 * 10;

// Parameters of another type or on another device are refused by our kernels as by torch's.
bool takes_own_kernels(const torch::Tensor& X, Kernels kernels) {
  return lenet_has_own_kernels(kernels, X.scalar_type(), X.device().type()) && lenet_features_take(X);
}

// What torch's layers keep until the backward pass (a convolution's output lives until its ReLU has run, the
// ReLU's output until the end), and what is alive at the widest point, the first layer's backward: what flows
// into the ReLU and what leaves it, and the copy that oneDNN computes on, its 20 channels padded to 32.
int64_t stock_activations_per_row() {
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

// The images; what LeNetKept has of them, whose signs are bytes; the features and their gradient; the hidden
// layer and the logits.
int64_t own_activations_per_row() {
  using Sizes = LeNetSizes;
  constexpr int64_t kSigns = (Sizes::kPooled1 + Sizes::kFeatures) / static_cast<int64_t>(sizeof(float));
  constexpr int64_t kFeatureLayers = Sizes::kImage + Sizes::kPooled1 + kSigns;
  constexpr int64_t kHead = 2 * Sizes::kFeatures + Sizes::kHidden + Sizes::kClasses;
  return Sizes::kImage + kFeatureLayers + kHead;
}

}  // namespace

torch::Tensor lenet_by(Kernels kernels, const torch::Tensor& X, const Params& params) {
  const auto* own = takes_own_kernels(X, kernels) ? &own_layers(kernels) : nullptr;
  return linear_layers(convolutions(X, params, own), params, own);
}

torch::Tensor lenet(const torch::Tensor& X, const Params& params) {
  return lenet_by(Kernels::kAuto, X, params);
}

bool lenet_has_own_kernels(Kernels kernels, torch::ScalarType dtype, torch::DeviceType device) {
  return kernels != Kernels::kTorch && dtype == torch::kFloat32 && device == torch::kCPU;
}

LeNetImpl::LeNetImpl(uint64_t seed, torch::ScalarType dtype, Kernels chosen) : kernels(chosen) {
  auto generator = at::detail::createCPUGenerator(seed);
  // Always drawn in float, so that a double network starts from the same values.
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

int64_t lenet_activations_per_row(bool own_kernels) {
  return own_kernels ? own_activations_per_row() : stock_activations_per_row();
}

int64_t lenet_working_bytes(int64_t threads) {
  const auto& layers = own_layers(Kernels::kAuto);
  const int64_t of_thread = layers.scratch + layers.sums + layers.head_scratch + kLinearProducts;
  return static_cast<int64_t>(sizeof(float)) * threads * of_thread;
}

std::vector<ModelLayer> LeNetImpl::layers() {
  const auto self = std::static_pointer_cast<LeNetImpl>(shared_from_this());
  const auto own_for = [self](const torch::Tensor& X) {
    return takes_own_kernels(X.detach(), self->kernels) ? &own_layers(self->kernels) : nullptr;
  };
  return {{.name = "both convolutions, ReLU, pooling",
           .input = {1, 28, 28},
           .first = true,
           .forward_flops = 2 * (kFirstProducts + kSecondProducts),
           .backward_flops = 2 * (kFirstProducts + 2 * kSecondProducts),
           .forward = [=](const auto& X) { return convolutions(X, self->parameters(), own_for(X)); }},
          {.name = "both linear layers",
           .input = {LeNetSizes::kFeatures},
           .forward_flops = 2 * kLinearProducts,
           .backward_flops = 4 * kLinearProducts,
           .forward = [=](const auto& X) { return linear_layers(X, self->parameters(), own_for(X)); }}};
}

int64_t lenet_training_flops_per_row() {
  return 2 * (3 * (kFirstProducts + kSecondProducts + kLinearProducts) - kFirstProducts);
}

}  // namespace lockstep
