// The flat optimizer against torch::optim, which updates one tensor after another; arithmetic.
#include <ATen/Context.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <lockstep/tests/catch.h>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/optimizer/flat_optimizer.h>
#include <lockstep/tests/parallel/optimizer/flat_memory.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
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

// One parameter, with a gap behind it.
FlatMemory memory_of(const Tensor& numbers) { return FlatMemory({numbers.clone().requires_grad_()}); }

Tensor flat_result(const OptimizerOptions& options, int64_t n, torch::ScalarType dtype, int steps) {
  FlatMemory memory(parts_of(numbers(n, 1, dtype)));
  FlatOptimizer optimizer(options, torch::kCPU);
  optimizer.hold(memory.trained(options));
  for (int step = 0; step < steps; ++step) {
    const auto grads = numbers(n, 100 + static_cast<uint64_t>(step), dtype).tensor_split(3);
    for (size_t i = 0; i < grads.size(); ++i) memory.set_gradient(i, grads[i]);
    optimizer.set_lr(rate(step));
    optimizer.step({});
    if (memory.flat_gradients().count_nonzero().item<int64_t>() != 0)
      throw std::logic_error("the optimizer left gradients behind");
  }
  return memory.values();
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

template <class Options>
Options torch_adam(const OptimizerOptions& options) {
  return Options(1)
      .betas({options.beta1, options.beta2})
      .eps(options.epsilon)
      .weight_decay(options.weight_decay);
}

// The options of kPython..., whose second parameter has no weight decay, and whose third a tenth of the rate.
OptimizerOptions with_groups(OptimizerOptions options) {
  options.group = [](const std::string& name, const Tensor& param) -> GroupOptions {
    if (name == "p1") return {.weight_decay = 0};
    return {.lr_factor = param.numel() == 2 ? .1 : 1};
  };
  return options;
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

TEST_CASE("Adam and AdamW agree with torch::optim") {
  for (const double weight_decay : {0., .01}) {
    INFO("weight decay " << weight_decay);
    OptimizerOptions options{.weight_decay = weight_decay};
    const auto check_both = [&] {
      options.kind = OptimizerKind::kAdam;
      check_alike<torch::optim::Adam>(options, torch_adam<torch::optim::AdamOptions>(options));
      options.kind = OptimizerKind::kAdamW;
      check_alike<torch::optim::AdamW>(options, torch_adam<torch::optim::AdamWOptions>(options));
    };
    check_both();
    options.beta1 = .8;
    options.beta2 = .95;
    options.epsilon = 1e-3;
    check_both();
  }
}

TEST_CASE("300 steps of groups with other rates and weight decays have the numbers of Python's torch") {
  const std::pair<OptimizerOptions, PythonNumbers> cases[] = {
      {{.momentum = .9, .nesterov = true, .weight_decay = .01}, kPythonSgd},
      {{.kind = OptimizerKind::kAdam, .weight_decay = .01}, kPythonAdam},
      {{.kind = OptimizerKind::kAdamW, .weight_decay = .1}, kPythonAdamW}};
  for (const auto& [options, expected] : cases) {
    INFO(expected.optimizer);
    auto memory = python_memory();
    FlatOptimizer optimizer(options, torch::kCPU);
    optimizer.hold(memory.trained(with_groups(options)));
    for (int step = 0; step < 300; ++step) python_step(optimizer, memory, step);
    CHECK(largest_difference(memory.values(), torch::tensor(expected.values, kFloat64)) < 1e-12);
  }
}

TEST_CASE("parameters with the same options that lie side by side are one range") {
  const FlatMemory memory({torch::ones({3}), torch::ones({20}), torch::ones({2, 2}), torch::ones({1})});
  const auto ranges_of = [&](const GroupOf& group) {
    return memory.trained({.weight_decay = .1, .group = group}).ranges;
  };
  // The last parameter lies first; each takes multiples of 16 elements.
  const auto all = ranges_of(nullptr);
  REQUIRE(all.size() == 1);
  CHECK(all[0].offsets == std::vector<int64_t>{64, 32, 16, 0});
  CHECK(all[0].params.is_alias_of(memory.flat()));
  CHECK(all[0].params.numel() == 80);
  CHECK(all[0].group == GroupOptions{.weight_decay = .1});
  // A decay of the same value is the same group.
  CHECK(ranges_of([](auto&, auto&) { return GroupOptions{.weight_decay = .1}; }).size() == 1);

  const auto matrices =
      ranges_of([](auto&, auto& param) { return GroupOptions{.lr_factor = param.dim() == 2 ? 2. : 1.}; });
  REQUIRE(matrices.size() == 3);
  const std::vector<std::vector<int64_t>> offsets = {{32, 0}, {0}, {0}};
  const std::vector<int64_t> places = {32, 16, 0}, sizes = {48, 16, 16};
  for (size_t i = 0; i < 3; ++i) {
    INFO("range " << i);
    CHECK(matrices[i].first == std::vector<size_t>{0, 2, 3}[i]);
    CHECK(matrices[i].offsets == offsets[i]);
    CHECK(matrices[i].params.storage_offset() == places[i]);
    CHECK(matrices[i].grads.numel() == sizes[i]);
    CHECK(matrices[i].group.lr_factor == (i == 1 ? 2 : 1));
  }
}

TEST_CASE("parameters with a rate of 0 stay, and their group's state moves on") {
  const OptimizerOptions options{.kind = OptimizerKind::kAdam, .group = [](auto& name, auto&) {
                                   return GroupOptions{.lr_factor = name == "p0" ? 0. : 1.};
                                 }};
  auto memory = python_memory();
  const auto before = memory.params()[0].detach().clone();
  FlatOptimizer optimizer(options, torch::kCPU);
  optimizer.hold(memory.trained(options));
  python_step(optimizer, memory, 0);
  CHECK(memory.params()[0].detach().equal(before));
  const auto heap = heap_memory();
  const auto tensors = optimizer.host_copies(&heap);
  REQUIRE(tensors.front().name == "exp_avg.p0");
  CHECK(tensors.front().tensor.abs().min().item<double>() > 0);
}

TEST_CASE("a group with an impossible rate or weight decay is refused by the parameter's name") {
  const auto refusal = [](GroupOptions wrong) {
    const FlatMemory memory({torch::ones({2}), torch::ones({3})});
    return refusal_of([&] {
      memory.trained({.group = [&](auto& name, auto&) { return name == "p1" ? wrong : GroupOptions(); }});
    });
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  CHECK(refusal({.lr_factor = -1}) == "the group of parameter p1 has lr_factor -1");
  CHECK(refusal({.lr_factor = kNan}) == "the group of parameter p1 has lr_factor nan");
  CHECK(refusal({.weight_decay = -.5}) == "the group of parameter p1 has weight_decay -0.5");
}

TEST_CASE("a large buffer, which torch's kernels divide among threads, agrees too") {
  constexpr int64_t kLarge = 1'000'003;
  const OptimizerOptions sgd{.momentum = .9, .nesterov = true, .weight_decay = .01};
  CHECK(largest_difference(flat_result(sgd, kLarge, kFloat64, 3),
                           torch_result<torch::optim::SGD>(torch_sgd(sgd), kLarge, kFloat64, 3)) < 1e-12);
  const OptimizerOptions adamw{.kind = OptimizerKind::kAdamW, .weight_decay = .01};
  CHECK(largest_difference(flat_result(adamw, kLarge, kFloat64, 3),
                           torch_result<torch::optim::AdamW>(torch_adam<torch::optim::AdamWOptions>(adamw),
                                                             kLarge, kFloat64, 3)) < 1e-12);
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
  CHECK(differs([](OptimizerOptions& other) {
    other.group = [](auto& name, auto&) { return GroupOptions{.lr_factor = name == "p2" ? .9 : 1.}; };
  }));
  CHECK(differs([](OptimizerOptions& other) {
    other.group = [](auto& name, auto&) { return GroupOptions{.weight_decay = name == "p1" ? 0. : .01}; };
  }));
}

namespace {

// One parameter and its optimizer.
struct ByHand {
  ByHand(const OptimizerOptions& options, const Tensor& start)
      : memory(memory_of(start)), optimizer(options, torch::kCPU) {
    optimizer.hold(memory.trained(options));
  }

  Tensor step(double lr, const Tensor& grads, const Tensor& scale = {}) {
    memory.set_gradient(0, grads);
    optimizer.set_lr(lr);
    optimizer.step(scale);
    return memory.values();
  }

  FlatMemory memory;
  FlatOptimizer optimizer;
};

Tensor doubles(const std::vector<double>& values) { return torch::tensor(values, kFloat64); }

}  // namespace

TEST_CASE("two steps by hand") {
  // m = 2, p = 1 - .5 * 2 = 0; m = .5 * 2 + 4 = 5, p = 0 - .1 * 5
  ByHand sgd({.momentum = .5}, doubles({1}));
  CHECK(sgd.step(.5, doubles({2})).item<double>() == Approx(0).margin(1e-15));
  CHECK(sgd.step(.1, doubles({4})).item<double>() == Approx(-.5));

  // The first step of AdamW: decay by lr * .1, then lr against the gradient's sign, whatever its size. Adam
  // adds .1 p to the gradient, which here turns the sign of the first.
  const OptimizerOptions adamw{.kind = OptimizerKind::kAdamW, .weight_decay = .1, .epsilon = 1e-15};
  auto adam = adamw;
  adam.kind = OptimizerKind::kAdam;
  const auto decayed = ByHand(adamw, doubles({1, 1})).step(.01, doubles({-1e-3, -1e3}));
  CHECK(decayed[0].item<double>() == Approx(1 - .001 + .01));
  CHECK(decayed[1].item<double>() == Approx(1 - .001 + .01));
  const auto added = ByHand(adam, doubles({1, 1})).step(.01, doubles({-1e-3, -1e3}));
  CHECK(added[0].item<double>() == Approx(1 - .01));
  CHECK(added[1].item<double>() == Approx(1 + .01));
}

TEST_CASE("a scale is a factor on the gradients, and parameters stay leaves") {
  ByHand sgd({.momentum = .9}, torch::ones({3}));
  CHECK(sgd.step(.25, torch::ones({3}), torch::tensor(2.F)).equal(torch::full({3}, .5)));
  CHECK(sgd.memory.params()[0].is_leaf());
}

TEST_CASE("after each step the bf16 weights are the rounded parameters") {
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    auto memory = memory_of(numbers(997, 1, kFloat32));
    const auto copy = torch::zeros_like(memory.flat(), torch::kBFloat16);
    FlatOptimizer optimizer({.kind = kind}, torch::kCPU);
    optimizer.hold(memory.trained({.kind = kind}, copy));
    optimizer.set_lr(.1);
    for (uint64_t step = 0; step < 3; ++step) {
      memory.set_gradient(0, numbers(997, 100 + step, kFloat32));
      optimizer.step({});
      CHECK(copy.equal(memory.flat().to(torch::kBFloat16)));
    }
  }
}
