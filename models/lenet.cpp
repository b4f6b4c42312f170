#include <lockstep/models/lenet.h>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <lockstep/models/layers/channels_last.h>
#include <lockstep/models/layers/lenet_layers.h>
#include <lockstep/support/error.h>

namespace lockstep {

torch::Tensor lenet_convolutions(const torch::Tensor& X, const Params& params, const LeNetLayers<float>* by) {
  if (by) return lenet_features<float>(X, params[0], params[1], params[2], params[3], *by);
  // On a CPU a step takes a third less time in channels_last, which every layer keeps.
  auto h = torch::conv2d(X.is_cpu() ? channels_last_copy(X) : X, params[0], params[1]);  // (n, 20, 26, 26)
  h = torch::avg_pool2d(torch::relu(h), 2, 2);                                           // (n, 20, 13, 13)
  h = torch::conv2d(h, params[2], params[3]);                                            // (n, 50, 9, 9)
  h = torch::avg_pool2d(torch::relu(h), 2, 2);  // (n, 50, 4, 4): the ninth row and column are dropped
  return h.flatten(1);
}

torch::Tensor lenet_linear_layers(const torch::Tensor& features, const Params& params,
                                  const LeNetLayers<float>* by) {
  if (by) return lenet_head<float>(features, params[4], params[5], params[6], params[7], *by);
  const auto h = torch::relu(torch::mm(features, params[4]) + params[5]);  // (n, 128)
  return torch::mm(h, params[6]) + params[7];
}

torch::Tensor lenet_by(Kernels kernels, const torch::Tensor& X, const Params& params) {
  const auto* by = lenet_kernels(kernels, X);
  return lenet_linear_layers(lenet_convolutions(X, params, by), params, by);
}

torch::Tensor lenet(const torch::Tensor& X, const Params& params) {
  return lenet_by(Kernels::kAuto, X, params);
}

void check_shape(const LeNetShape& shape) {
  if (shape.features() < 1 || shape.channels < 1 || shape.classes < 1) {
    throw UsageError(fmt::format("lenet for {} channels of {} x {} pixels and {} classes cannot be built",
                                 shape.channels, shape.height, shape.width, shape.classes),
                     fmt::format("images have {} pixels a side at least", LeNetShape::kLeastSide));
  }
}

LeNetImpl::LeNetImpl(uint64_t seed, torch::ScalarType dtype, Kernels chosen, const LeNetShape& shape)
    : kernels(shape.has_kernels() ? chosen : Kernels::kTorch) {
  check_shape(shape);
  auto generator = at::detail::createCPUGenerator(seed);
  // Drawn in float for all dtypes, so that a double network starts from the same values.
  const auto weight = [&](const char* name, torch::IntArrayRef sizes) {
    const auto normal = torch::randn(sizes, generator, torch::TensorOptions(torch::kFloat32));
    return register_parameter(name, (normal * .01).to(dtype));
  };
  const auto bias = [&](const char* name, int64_t size) {
    return register_parameter(name, torch::zeros({size}, dtype));
  };
  W1 = weight("W1", {20, shape.channels, 3, 3});
  b1 = bias("b1", 20);
  W2 = weight("W2", {50, 20, 5, 5});
  b2 = bias("b2", 50);
  W3 = weight("W3", {shape.features(), 128});
  b3 = bias("b3", 128);
  W4 = weight("W4", {128, shape.classes});
  b4 = bias("b4", shape.classes);
}

torch::Tensor LeNetImpl::forward(const torch::Tensor& X) { return lenet_by(kernels, X, parameters()); }

}  // namespace lockstep
