// The flat optimizer against torch::optim, which updates one tensor after another; arithmetic.
#include <ATen/Context.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <lockstep/tests/catch.h>
#include <stdexcept>

#include <lockstep/parallel/optimizer/optimizer.h>

using namespace lockstep;
using torch::kFloat32;
using torch::kFloat64;
using torch::Tensor;

namespace {

constexpr int kSteps = 50;

double rate(int step) { return .05 / (1 + .1 * step); }  // changes in every step

Tensor numbers(int64_t n, uint64_t seed, torch::ScalarType dtype) {  // (n)
  at::manual_seed(seed);
  return torch::randn({n}, kFloat64).to(dtype);
}

// The flat tensor cut into three parameters: copies, as leaves.
std::vector<Tensor> parts_of(const Tensor& flat) {
  std::vector<Tensor> parts;
  for (const auto& part : flat.tensor_split(3)) parts.push_back(part.clone().requires_grad_());
  return parts;
}

void set_gradients(const std::vector<Tensor>& params, const Tensor& flat) {
  const auto parts = flat.tensor_split(3);
  for (size_t i = 0; i < params.size(); ++i) params[i].mutable_grad() = parts[i].clone();
}

Tensor flattened(const std::vector<Tensor>& params) {
  const torch::NoGradGuard no_grad;
  return torch::cat(params);
}

// The parameters after kSteps steps of torch's optimizer from the same start.
template <class TorchOptimizer, class TorchOptions>
Tensor torch_result(const TorchOptions& options, int64_t n, torch::ScalarType dtype, int steps) {
  const auto params = parts_of(numbers(n, 1, dtype));
  TorchOptimizer optimizer(params, options);
  for (int step = 0; step < steps; ++step) {
    set_gradients(params, numbers(n, 100 + static_cast<uint64_t>(step), dtype));
    optimizer.param_groups().front().options().set_lr(rate(step));
    optimizer.step();
  }
  return flattened(params);
}

Tensor flat_result(const OptimizerOptions& options, int64_t n, torch::ScalarType dtype, int steps) {
  auto params = numbers(n, 1, dtype);
  FlatOptimizer optimizer(options, torch::kCPU);
  for (int step = 0; step < steps; ++step) {
    auto grads = numbers(n, 100 + static_cast<uint64_t>(step), dtype);
    optimizer.set_lr(rate(step));
    optimizer.step(params, grads);
    if (grads.count_nonzero().item<int64_t>() != 0)
      throw std::logic_error("the optimizer left gradients behind");
  }
  return params;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0 && b.numel() == 0) return 0;
  return (a.to(kFloat64) - b.to(kFloat64)).abs().max().item<double>();
}

// Tolerances: rounding in double; in float the rounding of 50 steps with numbers around 1. The parameters
// must have changed.
template <class TorchOptimizer, class TorchOptions>
void check_alike(const OptimizerOptions& options, const TorchOptions& torch_options) {
  for (const int64_t n : {0, 1, 2, 997}) {
    INFO(n << " elements");
    CHECK(largest_difference(flat_result(options, n, kFloat64, kSteps),
                             torch_result<TorchOptimizer>(torch_options, n, kFloat64, kSteps)) < 1e-12);
    CHECK(largest_difference(flat_result(options, n, kFloat32, kSteps),
                             torch_result<TorchOptimizer>(torch_options, n, kFloat32, kSteps)) < 2e-5);
    if (n > 0)
      CHECK(largest_difference(flat_result(options, n, kFloat64, kSteps), numbers(n, 1, kFloat64)) > .001);
  }
}

torch::optim::SGDOptions torch_sgd(const OptimizerOptions& options) {
  return torch::optim::SGDOptions(1)
      .momentum(options.momentum)
      .weight_decay(options.weight_decay)
      .nesterov(options.nesterov);
}

torch::optim::AdamWOptions torch_adamw(const OptimizerOptions& options) {
  return torch::optim::AdamWOptions(1)
      .betas({options.beta1, options.beta2})
      .eps(options.epsilon)
      .weight_decay(options.weight_decay);
}

}  // namespace

TEST_CASE("SGD agrees with torch::optim::SGD for every combination of momentum, Nesterov and weight decay") {
  for (const double weight_decay : {0., .01}) {
    for (const double momentum : {0., .9}) {
      for (const bool nesterov : {false, true}) {
        if (nesterov && momentum == 0) continue;  // torch refuses this combination
        INFO("weight decay " << weight_decay << ", momentum " << momentum << ", nesterov " << nesterov);
        const OptimizerOptions options{
            .momentum = momentum, .nesterov = nesterov, .weight_decay = weight_decay};
        check_alike<torch::optim::SGD>(options, torch_sgd(options));
      }
    }
  }
}

TEST_CASE("AdamW agrees with torch::optim::AdamW") {
  for (const double weight_decay : {0., .01}) {
    INFO("weight decay " << weight_decay);
    OptimizerOptions options{.kind = OptimizerKind::kAdamW, .weight_decay = weight_decay};
    check_alike<torch::optim::AdamW>(options, torch_adamw(options));
    options.beta1 = .8;
    options.beta2 = .95;
    options.epsilon = 1e-3;
    check_alike<torch::optim::AdamW>(options, torch_adamw(options));
  }
}

TEST_CASE("a large buffer, which torch's kernels divide among threads, agrees too") {
  constexpr int64_t kLarge = 1'000'003;
  const OptimizerOptions sgd{.momentum = .9, .nesterov = true, .weight_decay = .01};
  CHECK(largest_difference(flat_result(sgd, kLarge, kFloat64, 3),
                           torch_result<torch::optim::SGD>(torch_sgd(sgd), kLarge, kFloat64, 3)) < 1e-12);
  const OptimizerOptions adamw{.kind = OptimizerKind::kAdamW, .weight_decay = .01};
  CHECK(largest_difference(flat_result(adamw, kLarge, kFloat64, 3),
                           torch_result<torch::optim::AdamW>(torch_adamw(adamw), kLarge, kFloat64, 3)) <
        1e-12);
}

TEST_CASE("the comparison detects each option that differs") {
  const OptimizerOptions sgd{.momentum = .9, .nesterov = true, .weight_decay = .01};
  const auto expected = torch_result<torch::optim::SGD>(torch_sgd(sgd), 997, kFloat64, kSteps);
  const auto differs = [&](auto change) {
    auto other = sgd;
    change(other);
    return largest_difference(flat_result(other, 997, kFloat64, kSteps), expected) > 1e-4;
  };
  CHECK_FALSE(differs([](OptimizerOptions&) {}));
  CHECK(differs([](OptimizerOptions& other) { other.momentum = .899; }));
  CHECK(differs([](OptimizerOptions& other) { other.nesterov = false; }));
  CHECK(differs([](OptimizerOptions& other) { other.weight_decay = .0099; }));
  CHECK(differs([](OptimizerOptions& other) { other.kind = OptimizerKind::kAdamW; }));
}

TEST_CASE("two steps by hand") {
  // m = 2, p = 1 - .5 * 2 = 0; m = .5 * 2 + 4 = 5, p = 0 - .1 * 5
  auto params = torch::tensor({1.}, kFloat64);
  FlatOptimizer sgd({.momentum = .5}, torch::kCPU);
  sgd.set_lr(.5);
  sgd.step(params, torch::tensor({2.}, kFloat64));
  CHECK(params.item<double>() == Approx(0).margin(1e-15));
  sgd.set_lr(.1);
  sgd.step(params, torch::tensor({4.}, kFloat64));
  CHECK(params.item<double>() == Approx(-.5));

  // AdamW's first step: decay by lr * .1, then lr against the gradient's sign, whatever its size.
  auto adam_params = torch::tensor({1., 1.}, kFloat64);
  FlatOptimizer adamw({.kind = OptimizerKind::kAdamW, .weight_decay = .1, .epsilon = 0}, torch::kCPU);
  adamw.set_lr(.01);
  adamw.step(adam_params, torch::tensor({1e-3, -1e3}, kFloat64));
  CHECK(adam_params[0].item<double>() == Approx(1 - .001 - .01));
  CHECK(adam_params[1].item<double>() == Approx(1 - .001 + .01));
}

TEST_CASE("parameters that require gradients can be stepped") {
  auto params = torch::ones({3}).requires_grad_();
  FlatOptimizer sgd({.momentum = .9}, torch::kCPU);
  sgd.set_lr(.25);
  sgd.step(params, torch::ones({3}), torch::tensor(2.F));  // the gradient is scaled first
  CHECK(params.detach().equal(torch::full({3}, .5)));
  CHECK(params.is_leaf());
}

TEST_CASE("after each step the bf16 weights are the rounded parameters") {
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdamW}) {
    auto params = numbers(997, 1, kFloat32);
    const auto copy = torch::zeros({997}, torch::kBFloat16);
    FlatOptimizer optimizer({.kind = kind}, torch::kCPU);
    optimizer.keep_bf16_weights(copy);
    optimizer.set_lr(.1);
    for (uint64_t step = 0; step < 3; ++step) {
      optimizer.step(params, numbers(997, 100 + step, kFloat32));
      CHECK(copy.equal(params.to(torch::kBFloat16)));
    }
  }
}
