#include <lockstep/models/lenet.h>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

namespace lockstep {

namespace {

// On a processor a step takes a third less time in channels_last, which every layer passes on. (contiguous()
// would not do: with one channel both formats lay out alike, and only the strides tell which is meant.)
torch::Tensor in_fastest_format(const torch::Tensor& X) {
  if (!X.is_cpu()) return X;
  return torch::empty(X.sizes(), X.options(), torch::MemoryFormat::ChannelsLast).copy_(X);
}

}  // namespace

torch::Tensor lenet(const torch::Tensor& X, const Params& params) {
  auto h = torch::conv2d(in_fastest_format(X), params[0], params[1]);  // (n, 20, 26, 26)
  h = torch::avg_pool2d(torch::relu(h), 2, 2);                         // (n, 20, 13, 13)
  h = torch::conv2d(h, params[2], params[3]);                          // (n, 50, 9, 9)
  h = torch::avg_pool2d(torch::relu(h), 2, 2);  // (n, 50, 4, 4): the ninth row and column are dropped
  h = h.flatten(1);                             // (n, 800)
  h = torch::relu(torch::mm(h, params[4]) + params[5]);  // (n, 128)
  return torch::mm(h, params[6]) + params[7];            // (n, 10)
}

LeNetImpl::LeNetImpl(uint64_t seed, torch::ScalarType dtype) {
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

torch::Tensor LeNetImpl::forward(const torch::Tensor& X) { return lenet(X, parameters()); }

int64_t lenet_activations_per_row() {
  constexpr int64_t kInput = 28 * 28;
  constexpr int64_t kConv1 = 20 * 26 * 26;
  constexpr int64_t kPool1 = 20 * 13 * 13;
  constexpr int64_t kConv2 = 50 * 9 * 9;
  constexpr int64_t kPool2 = 50 * 4 * 4;
  constexpr int64_t kHidden = 128;
  // Kept until the backward pass: a convolution's output lives until its ReLU has run, the ReLU's output
  // until the end.
  constexpr int64_t kKept = kInput + kConv1 + kPool1 + kConv2 + kPool2 + 2 * kHidden;
  // Alive at once at the widest point, the first layer's backward: what flows into the ReLU and what leaves
  // it, and the copy that oneDNN computes on, its 20 channels padded to 32.
  constexpr int64_t kWidest = 2 * kConv1 + 32 * 26 * 26;
  return kKept + kWidest;
}

int64_t lenet_training_flops_per_row() {
  constexpr int64_t kFirst = 26 * 26 * 20 * (1 * 3 * 3);  // multiplications
  constexpr int64_t kSecond = 9 * 9 * 50 * (20 * 5 * 5);
  constexpr int64_t kLinear = 800 * 128 + 128 * 10;
  return 2 * (3 * (kFirst + kSecond + kLinear) - kFirst);
}

}  // namespace lockstep
