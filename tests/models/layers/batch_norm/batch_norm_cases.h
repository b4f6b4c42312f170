// fused_batch_norm_relu() against torch's batch_norm in double, on the CPU (emulated) or a GPU.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/batch_norm.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <lockstep/tests/catch.h>

#include <lockstep/models/layers/batch_norm/batch_norm_relu.h>
#include <lockstep/tests/support/compare.h>

namespace lockstep::testing {

struct BatchNormShape {
  int64_t n, c, h, w;
};

// Tensors on the host. The result has the type of dy.
struct BatchNormInputs {
  torch::Tensor x, residual, dy;  // (n, c, h, w) in channels_last; residual may be undefined
  torch::Tensor weight, bias, conv_bias, running_mean, running_var;  // (c) float
  torch::Tensor residual_bias = {};                                  // (c) float, may be undefined
  std::optional<CpuCapability> capability = {};
};

// dtype: type of the result. of_x: type of x, if it is another.
inline BatchNormInputs batch_norm_inputs(const BatchNormShape& shape, bool residual, torch::ScalarType dtype,
                                         double mean = 0, std::optional<torch::ScalarType> of_x = {}) {
  auto generator = at::detail::createCPUGenerator(3);
  const auto normal = [&](torch::IntArrayRef sizes) {
    return torch::randn(sizes, generator, torch::dtype(torch::kFloat64));
  };
  const auto in_channels_last = [](const torch::Tensor& values) {
    return values.contiguous(torch::MemoryFormat::ChannelsLast);
  };
  const auto activation = [&](const torch::Tensor& values) { return in_channels_last(values.to(dtype)); };
  const std::vector<int64_t> sizes{shape.n, shape.c, shape.h, shape.w};
  const std::vector<int64_t> channels{1, shape.c, 1, 1};
  BatchNormInputs inputs;
  inputs.x = in_channels_last(
      (normal(sizes) * normal(channels).exp() + normal(channels) + mean).to(of_x.value_or(dtype)));
  if (residual) inputs.residual = activation(normal(sizes));
  inputs.dy = activation(normal(sizes));
  const auto floats = [](const torch::Tensor& values) { return values.to(torch::kFloat32); };
  inputs.weight = floats(normal({shape.c}));
  inputs.bias = floats(normal({shape.c}));
  inputs.conv_bias = floats(normal({shape.c}));
  inputs.running_mean = floats(normal({shape.c}));
  inputs.running_var = floats(normal({shape.c}).exp());
  return inputs;
}

// The same with a bias of the residual.
inline BatchNormInputs with_residual_bias(BatchNormInputs inputs) {
  inputs.residual_bias = 2 * inputs.conv_bias.flip(0) - .5;
  return inputs;
}

struct BatchNormResults {
  torch::Tensor y, running_mean, running_var, dx, dresidual, dweight, dbias, dresidual_bias;

  std::vector<torch::Tensor> all() const {
    return {y, running_mean, running_var, dx, dweight, dbias, dresidual};
  }
};

inline constexpr double kMomentum = .3;
inline constexpr double kEps = 1e-5;

inline BatchNormResults fused_results(const BatchNormInputs& inputs, torch::Device device) {
  const auto leaf = [&](const torch::Tensor& host) {
    return host.defined() ? host.to(device, /*non_blocking=*/false, /*copy=*/true).requires_grad_() : host;
  };
  const auto copy = [&](const torch::Tensor& host) { return host.to(device, false, /*copy=*/true); };
  const auto x = leaf(inputs.x);
  const auto residual = leaf(inputs.residual);
  FusedBatchNorm layer{.weight = leaf(inputs.weight),
                       .bias = leaf(inputs.bias),
                       .running_mean = copy(inputs.running_mean),
                       .running_var = copy(inputs.running_var),
                       .conv_bias = leaf(inputs.conv_bias),
                       .residual_bias = leaf(inputs.residual_bias),
                       .dtype = inputs.dy.scalar_type(),
                       .momentum = kMomentum,
                       .eps = kEps,
                       .capability = inputs.capability};
  const auto y = fused_batch_norm_relu(x, layer, residual);
  y.backward(inputs.dy.to(device));
  CHECK_FALSE(layer.conv_bias.grad().defined());
  CHECK(y.scalar_type() == inputs.dy.scalar_type());
  CHECK(y.is_contiguous(torch::MemoryFormat::ChannelsLast));
  return {y.detach(),
          layer.running_mean,
          layer.running_var,
          x.grad(),
          residual.defined() ? residual.grad() : residual,
          layer.weight.grad(),
          layer.bias.grad(),
          layer.residual_bias.defined() ? layer.residual_bias.grad() : layer.residual_bias};
}

// Computes the reference in double, contiguous, with the convolution's bias added. The gradient is 0 where
// `y` is: a value that is positive in one computation and 0 in the other because of rounding would have
// another gradient.
inline BatchNormResults reference_results(const BatchNormInputs& inputs, const torch::Tensor& y) {
  const auto leaf = [](const torch::Tensor& a) {
    return a.defined() ? a.to(torch::kFloat64).contiguous().clone().requires_grad_() : a;
  };
  const auto x = leaf(inputs.x);
  const auto residual = leaf(inputs.residual);
  const auto weight = leaf(inputs.weight);
  const auto bias = leaf(inputs.bias);
  const auto residual_bias = leaf(inputs.residual_bias);
  BatchNormResults results;
  results.running_mean = leaf(inputs.running_mean).detach();
  results.running_var = leaf(inputs.running_var).detach();
  const auto biased = x + inputs.conv_bias.to(torch::kFloat64).view({1, -1, 1, 1});
  auto z = at::batch_norm(biased, weight, bias, results.running_mean, results.running_var, /*training=*/true,
                          kMomentum, kEps, /*cudnn_enabled=*/false);
  if (residual.defined()) z = z + residual;
  if (residual_bias.defined()) z = z + residual_bias.view({1, -1, 1, 1});
  z.backward(inputs.dy.to(torch::kFloat64) * y.gt(0));
  results.y = z.detach().relu();
  results.dx = x.grad();
  if (residual.defined()) results.dresidual = residual.grad();
  results.dweight = weight.grad();
  results.dbias = bias.grad();
  if (residual_bias.defined()) results.dresidual_bias = residual_bias.grad();
  return results;
}

// Returns true if |a - b| <= `tolerance` everywhere, plus half a unit in the last place of b if a is
// bfloat16.
inline bool close(const torch::Tensor& a, const torch::Tensor& b, double tolerance) {
  const double rounding = a.scalar_type() == torch::kBFloat16 ? 1. / 256 : 0;
  const auto wide = a.to(torch::kFloat64);
  return ((wide - b).abs() <= b.abs() * rounding + tolerance).all().item<bool>();
}

inline BatchNormResults check_batch_norm(const BatchNormInputs& inputs, torch::Device device) {
  auto fused = fused_results(inputs, device);
  for (auto* tensor : {&fused.y, &fused.running_mean, &fused.running_var, &fused.dx, &fused.dresidual,
                       &fused.dweight, &fused.dbias, &fused.dresidual_bias}) {
    if (tensor->defined()) *tensor = tensor->cpu();
  }
  const auto expected = reference_results(inputs, fused.y);
  CHECK(close(fused.y, expected.y, 1e-6 * max_abs(expected.y)));
  CHECK(close(fused.running_mean, expected.running_mean, 1e-6 * max_abs(expected.running_mean)));
  CHECK(close(fused.running_var, expected.running_var, 1e-6 * max_abs(expected.running_var)));
  CHECK(close(fused.dweight, expected.dweight, 1e-5 * max_abs(expected.dweight)));
  CHECK(close(fused.dbias, expected.dbias, 1e-5 * max_abs(expected.dbias)));
  if (inputs.residual_bias.defined()) {
    CHECK(close(fused.dresidual_bias, expected.dresidual_bias, 1e-5 * max_abs(expected.dbias)));
    CHECK(fused.dresidual_bias.equal(fused.dbias));
    CHECK(fused.dresidual_bias.data_ptr() != fused.dbias.data_ptr());
  }
  if (expected.dresidual.defined()) CHECK(fused.dresidual.to(torch::kFloat64).equal(expected.dresidual));
  // dx is a small difference of values of this size: |weight| invstd, (c), times |dy|.
  const auto variance = inputs.x.to(torch::kFloat64).var({0, 2, 3}, /*unbiased=*/false);
  const auto factor = inputs.weight.abs() / (variance + kEps).sqrt();
  const auto size = (factor.view({1, -1, 1, 1}) * inputs.dy.to(torch::kFloat64)).abs().max().item<double>();
  CHECK(close(fused.dx, expected.dx, 1e-5 * size));
  return fused;
}

inline void check_batch_norms(torch::Device device) {
  const auto check = [&](const BatchNormShape& shape, bool residual, torch::ScalarType dtype) {
    INFO(dtype << " (" << shape.n << ", " << shape.c << ", " << shape.h << ", " << shape.w << ")"
               << (residual ? " with a residual" : ""));
    const auto inputs = batch_norm_inputs(shape, residual, dtype);
    check_batch_norm(residual ? with_residual_bias(inputs) : inputs, device);
  };
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    for (const int64_t c : {1, 3, 8, 16, 64, 100, 512}) {
      for (const bool residual : {false, true}) {
        check({2, c, 1, 1}, residual, dtype);
        check({7, c, 1, 1}, residual, dtype);
        check({1, c, 7, 7}, residual, dtype);
      }
      check({5, c, 157, 1}, /*residual=*/c % 8 == 0, dtype);
    }
    check({16, 3, 28, 28}, true, dtype);
    check({2, 1032, 4, 4}, false, dtype);
  }
  check({16, 64, 28, 28}, true, torch::kBFloat16);
}

// Channels whose values are far from 0, all alike, or NaN.
inline void check_hard_channels(torch::Device device, std::optional<CpuCapability> capability = {}) {
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    INFO(dtype);
    // bfloat16 has steps of 4 here; the reference takes the rounded input.
    auto inputs = batch_norm_inputs({4, 16, 14, 14}, true, dtype, /*mean=*/1000);
    inputs.capability = capability;
    check_batch_norm(inputs, device);
    inputs = batch_norm_inputs({4, 16, 14, 14}, true, dtype);
    inputs.capability = capability;
    inputs.x.select(1, 0).fill_(3);
    inputs.x.select(1, 5).fill_(0);
    check_batch_norm(inputs, device);
    inputs.x[1][2][3][4] = std::numeric_limits<float>::quiet_NaN();
    const auto y = fused_results(inputs, device).y.cpu();
    CHECK(y.select(1, 2).isnan().all().item<bool>());
    CHECK(y.isnan().sum().item<int64_t>() == 4 * 14 * 14);
  }
}

// Tensors with memory that vector loads cannot take, and gradients with another memory format.
inline void check_layouts(torch::Device device) {
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    INFO(dtype);
    auto inputs = batch_norm_inputs({3, 16, 5, 7}, true, dtype);
    const auto expected = fused_results(inputs, device);
    const auto off_by_one = [](const torch::Tensor& a) {
      const auto memory = torch::empty({a.numel() + 1}, a.options());
      const auto view = memory.as_strided(a.sizes(), a.strides(), 1);
      return view.copy_(a);
    };
    const auto same = [&](const BatchNormResults& results) {
      const auto all = results.all();
      for (size_t i = 0; i < all.size(); ++i)
        CHECK(close(all[i].cpu(), expected.all()[i].cpu().to(torch::kFloat64), 1e-5));
    };
    auto other = inputs;
    other.x = inputs.x.contiguous();
    other.residual = inputs.residual.contiguous();
    other.dy = inputs.dy.contiguous();
    same(fused_results(other, device));
    const auto x = off_by_one(inputs.x.to(device)).requires_grad_();
    const FusedBatchNorm layer{.weight = inputs.weight.to(device),
                               .bias = inputs.bias.to(device),
                               .running_mean = inputs.running_mean.to(device, false, true),
                               .running_var = inputs.running_var.to(device, false, true),
                               .conv_bias = inputs.conv_bias.to(device),
                               .momentum = kMomentum,
                               .eps = kEps};
    const auto residual = off_by_one(inputs.residual.to(device)).requires_grad_();
    const auto y = fused_batch_norm_relu(x, layer, residual);
    y.backward(off_by_one(inputs.dy.to(device)));
    CHECK(y.equal(expected.y));
    CHECK(x.grad().equal(expected.dx));
    CHECK(residual.grad().equal(expected.dresidual));
  }
}

// A result for two uses has the gradients that one has with the sum of theirs.
inline void check_two_uses(torch::Device device) {
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    for (const bool with_residual : {false, true}) {
      for (const int64_t c : {3, 40}) {
        INFO(dtype << ", " << c << " channels" << (with_residual ? " with a residual" : ""));
        auto inputs = batch_norm_inputs({5, c, 13, 7}, with_residual, dtype);
        const auto first = inputs.dy.to(device), second = inputs.x.to(device).flip(0);
        // Returns the gradients of x and of the residual for these of both results.
        const auto gradients = [&](const torch::Tensor& of_first, const torch::Tensor& of_second) {
          const auto x = inputs.x.to(device, false, /*copy=*/true).requires_grad_();
          const auto residual = with_residual
                                    ? inputs.residual.to(device, false, /*copy=*/true).requires_grad_()
                                    : torch::Tensor();
          const FusedBatchNorm layer{.weight = inputs.weight.to(device),
                                     .bias = inputs.bias.to(device),
                                     .running_mean = inputs.running_mean.to(device, false, true),
                                     .running_var = inputs.running_var.to(device, false, true),
                                     .eps = kEps};
          const auto y = fused_batch_norm_relu_for_two(x, layer, residual);
          CHECK(y.first.equal(y.second));
          CHECK(y.first.data_ptr() == y.second.data_ptr());
          std::vector<torch::Tensor> results, given;
          if (of_first.defined()) results.push_back(y.first), given.push_back(of_first);
          if (of_second.defined()) results.push_back(y.second), given.push_back(of_second);
          torch::autograd::backward(results, given);
          return std::pair(x.grad(), with_residual ? residual.grad() : x.grad());
        };
        const auto sum = gradients(first + second, {});
        for (const auto& found : {gradients(first, second), gradients({}, first + second)}) {
          CHECK(found.first.equal(sum.first));
          CHECK(found.second.equal(sum.second));
        }
        CHECK_FALSE(gradients(first, {}).first.equal(sum.first));
      }
    }
  }
}

inline void check_repeatable(torch::Device device) {
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    const auto inputs = batch_norm_inputs({5, 48, 14, 15}, true, dtype);
    const auto first = fused_results(inputs, device).all();
    const auto second = fused_results(inputs, device).all();
    for (size_t i = 0; i < first.size(); ++i) CHECK(first[i].equal(second[i]));
  }
}

}  // namespace lockstep::testing
