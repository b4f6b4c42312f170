// The CUDA kernels, emulated: batch_norm_emulated.cpp.
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <lockstep/tests/models/layers/batch_norm/batch_norm_cases.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("fused batch normalisation, addition and ReLU are torch's in double", "[cpu][slow]") {
  check_batch_norms(torch::kCPU);
}

// The definition in double: sum of dy relu(batch_norm(x) + residual), with the mask of ReLU in dy.
double objective(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                 const torch::Tensor& residual, const torch::Tensor& dy) {
  const auto mean = x.mean({0, 2, 3}, /*keepdim=*/true);
  const auto variance = (x - mean).square().mean({0, 2, 3}, /*keepdim=*/true);
  const auto normal = (x - mean) / (variance + kEps).sqrt();
  const auto z = normal * weight.view({1, -1, 1, 1}) + bias.view({1, -1, 1, 1}) + residual;
  return (z * dy).sum().item<double>();
}

TEST_CASE("gradients are the central differences of the definition in double") {
  const auto inputs = batch_norm_inputs({2, 5, 3, 4}, true, torch::kFloat32);
  const auto found = fused_results(inputs, torch::kCPU);
  const auto wide = [](const torch::Tensor& a) { return a.to(torch::kFloat64).contiguous(); };
  const auto dy =
      wide(inputs.dy) *
      found.y.gt(0);  // the mask of the result, since rounding may move a z near 0 to the other side
  std::vector<torch::Tensor> at{wide(inputs.x), wide(inputs.weight), wide(inputs.bias),
                                wide(inputs.residual)};
  const std::vector<torch::Tensor> gradients{found.dx, found.dweight, found.dbias, found.dresidual};
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < at.size(); ++i) {
    auto values = at[i].view(-1);
    auto differences = torch::zeros_like(values);
    for (int64_t k = 0; k < values.numel(); ++k) {
      const double kept = values[k].item<double>();
      const auto moved = [&](double by) {
        values[k] = kept + by;
        return objective(at[0], at[1], at[2], at[3], dy);
      };
      differences[k] = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      values[k] = kept;
    }
    INFO("gradient " << i);
    const auto expected = differences.view_as(at[i]);
    CHECK(max_difference(gradients[i], expected) <= 1e-5 * max_abs(expected));
  }
}

TEST_CASE("large means, constant channels and NaN in a batch normalisation") {
  check_hard_channels(torch::kCPU);
}

TEST_CASE("a batch normalisation takes tensors of any memory format and alignment") {
  check_layouts(torch::kCPU);
}

TEST_CASE("a result for two uses takes both gradients") { check_two_uses(torch::kCPU); }

TEST_CASE("a batch normalisation counts batches, with counters of its own or of a network") {
  const auto inputs = batch_norm_inputs({5, 72, 7, 7}, true, torch::kFloat32);
  const auto batches = torch::full({}, 6, torch::kInt64);
  BatchNormCounters counters;
  FusedBatchNorm layer{.weight = inputs.weight,
                       .bias = inputs.bias,
                       .running_mean = inputs.running_mean,
                       .running_var = inputs.running_var,
                       .num_batches_tracked = batches};
  const auto y = fused_batch_norm_relu(inputs.x, layer, inputs.residual);
  CHECK(batches.item<int64_t>() == 7);
  layer.counters = &counters;
  const auto zeros = counters.on(torch::kCPU, 3);
  CHECK(fused_batch_norm_relu(inputs.x, layer, inputs.residual).equal(y));
  CHECK(batches.item<int64_t>() == 8);
  CHECK(counters.on(torch::kCPU, 3).data_ptr() == zeros.data_ptr());
  CHECK(zeros.eq(0).all().item<bool>());
  CHECK(zeros.scalar_type() == torch::kInt32);
  CHECK(counters.on(torch::kCPU, zeros.numel() + 1).numel() > zeros.numel());
  layer.num_batches_tracked = torch::full({}, 6., torch::kFloat32);
  CHECK_THROWS_AS(fused_batch_norm_relu(inputs.x, layer, inputs.residual), c10::Error);
}

TEST_CASE("a batch normalisation gives the same bits in a second run, and with threads in another order") {
  emulated_order = ThreadOrder::kForward;
  check_repeatable(torch::kCPU);
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    const int64_t c = GENERATE(24, 3, 100);
    const auto inputs = batch_norm_inputs({5, c, 14, 15}, true, dtype);
    const auto forward = fused_results(inputs, torch::kCPU).all();
    for (const auto order : {ThreadOrder::kBackward, ThreadOrder::kMixed}) {
      emulated_order = order;
      const auto other = fused_results(inputs, torch::kCPU).all();
      emulated_order = ThreadOrder::kForward;
      for (size_t i = 0; i < forward.size(); ++i) CHECK(forward[i].equal(other[i]));
    }
  }
}

TEST_CASE("GPU kernels round a float input of a bfloat16 result") {
  auto inputs =
      batch_norm_inputs({5, 24, 14, 15}, true, torch::kBFloat16, /*mean=*/0, /*of_x=*/torch::kFloat32);
  const auto of_floats = fused_results(inputs, torch::kCPU);
  CHECK(of_floats.dx.scalar_type() == torch::kFloat32);
  inputs.x = inputs.x.to(torch::kBFloat16);
  const auto expected = fused_results(inputs, torch::kCPU).all();
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(of_floats.all()[i].to(torch::kFloat32).equal(expected[i].to(torch::kFloat32)));
  }
}

TEST_CASE("a batch normalisation that cannot be computed is refused") {
  const auto inputs = batch_norm_inputs({2, 4, 3, 3}, true, torch::kFloat32);
  const FusedBatchNorm layer{inputs.weight, inputs.bias, inputs.running_mean, inputs.running_var};
  CHECK_NOTHROW(fused_batch_norm_relu(inputs.x, layer, inputs.residual));
  CHECK_THROWS_WITH(fused_batch_norm_relu(torch::ones({1, 4, 1, 1}), layer),
                    Catch::Matchers::ContainsSubstring("Expected more than 1 value per channel"));
  CHECK_THROWS_AS(fused_batch_norm_relu(torch::ones({0, 4, 3, 3}), layer), c10::Error);
  CHECK_THROWS_AS(fused_batch_norm_relu(inputs.x.to(torch::kFloat64), layer), c10::Error);
  CHECK_THROWS_AS(fused_batch_norm_relu(torch::ones({2, 5, 3, 3}), layer), c10::Error);
  CHECK_THROWS_AS(fused_batch_norm_relu(inputs.x, layer, inputs.residual.to(torch::kBFloat16)), c10::Error);
  CHECK_THROWS_AS(fused_batch_norm_relu(inputs.x, layer, inputs.residual.slice(0, 0, 1)), c10::Error);
  auto other = layer;
  other.dtype = torch::kFloat32;
  CHECK_THROWS_AS(fused_batch_norm_relu(inputs.x.to(torch::kBFloat16), other), c10::Error);
  other.dtype = torch::kBFloat16;
  CHECK_THROWS_AS(fused_batch_norm_relu(inputs.x, other, inputs.residual), c10::Error);
  CHECK_NOTHROW(fused_batch_norm_relu(inputs.x, other, inputs.residual.to(torch::kBFloat16)));
  auto without = layer;
  without.running_mean = torch::Tensor();
  CHECK_THROWS_AS(fused_batch_norm_relu(inputs.x, without), c10::Error);
}

TEST_CASE("hooks run for the bias that gets no gradient, and its gradient stays 0") {
  struct Hook : torch::autograd::PostAccumulateGradHook {
    explicit Hook(int& count) : calls(count) {}
    void operator()(const torch::Tensor&) override { ++calls; }
    int& calls;
  };
  auto inputs = batch_norm_inputs({2, 4, 3, 3}, true, torch::kFloat32);
  inputs.x.requires_grad_();
  const auto conv_bias = inputs.conv_bias.clone().requires_grad_();
  const auto zeros = torch::zeros({4});
  conv_bias.mutable_grad() = zeros;
  int calls = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(conv_bias, std::make_unique<Hook>(calls));
  const FusedBatchNorm layer{inputs.weight, inputs.bias, inputs.running_mean, inputs.running_var, conv_bias};
  const bool residual = GENERATE(true, false);
  fused_batch_norm_relu(inputs.x, layer, residual ? inputs.residual : torch::Tensor()).sum().backward();
  CHECK(calls == 1);
  CHECK(conv_bias.grad().is_same(zeros));
  CHECK(zeros.eq(0).all().item<bool>());
}

TEST_CASE("only tensors that need a gradient get one") {
  const auto inputs = batch_norm_inputs({2, 4, 3, 3}, true, torch::kFloat32);
  const auto weight = inputs.weight.clone().requires_grad_();
  const FusedBatchNorm layer{weight, inputs.bias, inputs.running_mean.clone(), inputs.running_var.clone()};
  const auto y = fused_batch_norm_relu(inputs.x, layer, inputs.residual);
  y.sum().backward();
  CHECK(weight.grad().defined());
  CHECK_FALSE(inputs.residual.grad().defined());
  const torch::NoGradGuard no_grad;
  CHECK_FALSE(fused_batch_norm_relu(inputs.x, layer, inputs.residual).requires_grad());
}
