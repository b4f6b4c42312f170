// Convolutions, batch norms and ReLU of a program by lockstep's kernels: which ones, and how near to torch's.
#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <lockstep/parallel/training/precision.h>
#include <lockstep/tests/catch.h>
#include <lockstep/tests/models/program/fixture.h>

namespace lockstep {
namespace {

using testing::Fixture;

bool has_gradient(const torch::nn::Module& module, const std::string& name) {
  return module.named_parameters()[name].grad().defined();
}

// The largest difference of all gradients and buffers after a step, beside the largest number.
double apart(const torch::nn::Module& a, const torch::nn::Module& b) {
  double most = 0;
  const auto add = [&](const torch::Tensor& own, const torch::Tensor& other) {
    if (!own.defined() || !other.defined()) return;
    const auto x = own.to(torch::kFloat64), y = other.to(torch::kFloat64);
    const auto largest = std::max(.1, y.abs().max().item<double>());
    most = std::max(most, (x - y).abs().max().item<double>() / largest);
  };
  const auto parameters = b.named_parameters();
  for (const auto& own : a.named_parameters()) add(own.value().grad(), parameters[own.key()].grad());
  const auto buffers = b.named_buffers();
  for (const auto& own : a.named_buffers()) add(own.value(), buffers[own.key()]);
  return most;
}

// The first loss; the module then has its gradients and moved averages.
std::pair<double, std::shared_ptr<torch::nn::Module>> first_step(const Fixture& fixture, Kernels kernels,
                                                                 Precision precision = Precision::kFp32) {
  const auto model = fixture.factory(kernels)();
  model.module->to(precision == Precision::kFp64 ? torch::kFloat64 : torch::kFloat32);
  const AutocastGuard autocast(precision, torch::kCPU);
  const auto loss = model.loss_sum(fixture.batch(0)).loss;
  loss.backward();
  return {loss.item<double>(), model.module};
}

TEST_CASE("Batch norms of 16 channels between a convolution of images and ReLU are lockstep's") {
  const auto [name, norms] = GENERATE(table<std::string, int64_t>({{"fused_norms", 4},
                                                                   {"conv_bn", 0},        // of 6 channels
                                                                   {"channels_last", 0},  // of 4
                                                                   {"norm_of_rows", 0},
                                                                   {"mlp", 0}}));
  INFO(name);
  CHECK(Fixture(name).program->fused_batch_norms() == norms);
}

TEST_CASE("A step by lockstep's kernels is torch's in double but for rounding, and needs fp32 or bf16") {
  at::set_num_threads(1);
  const Fixture fixture("fused_norms");
  const auto [exact, doubles] = first_step(fixture, Kernels::kTorch, Precision::kFp64);
  const auto [same, again] = first_step(fixture, Kernels::kAuto, Precision::kFp64);
  CHECK_THAT(same, Catch::Matchers::WithinRel(exact, 1e-12));
  CHECK(apart(*again, *doubles) == 0);
  CHECK(has_gradient(*again, "stem.0.bias"));
  for (const auto kernels : {Kernels::kAuto, Kernels::kDirect, Kernels::kTorch}) {
    INFO(name_of(kKernelsNames, kernels));
    const auto [loss, module] = first_step(fixture, kernels);
    CHECK_THAT(loss, Catch::Matchers::WithinRel(exact, 1e-6));
    CHECK(apart(*module, *doubles) < 1e-4);
    // The norm removes the bias, which therefore gets no gradient.
    CHECK(has_gradient(*module, "stem.0.bias") == (kernels == Kernels::kTorch));
    CHECK(has_gradient(*module, "residual.weight"));
  }
  const auto [loss, module] = first_step(fixture, Kernels::kAuto, Precision::kBf16);
  CHECK_THAT(loss, Catch::Matchers::WithinRel(exact, 2e-2));
  CHECK_FALSE(has_gradient(*module, "stem.0.bias"));
}

TEST_CASE("Evaluation, and a norm that is frozen, stay torch's, with its bits") {
  at::set_num_threads(1);
  const Fixture fixture("fused_norms");
  ProgramModule fused(fixture.program), torchs(fixture.program, Kernels::kTorch);
  const auto X = fixture.batch(0)[0];
  const auto outputs = [&](auto change) {
    change(fused), change(torchs);
    return std::pair(fused.forward(X), torchs.forward(X));
  };
  const auto [evaluated, expected] = outputs([](ProgramModule& module) { module.eval(); });
  CHECK(evaluated.equal(expected));
  const auto [frozen, norms] = outputs([](ProgramModule& module) {
    module.train();
    for (const auto& one : module.named_modules("", /*include_self=*/false)) {
      if (one.key().ends_with("bn1") || one.key().ends_with("bn2")) one.value()->eval();
    }
  });
  CHECK(torch::allclose(frozen, norms, 1e-5, 1e-6));
  const auto averages = fused.named_buffers();
  CHECK(averages["block.bn2.running_mean"].abs().max().item<double>() == 0);
  CHECK(averages["norm.running_mean"].abs().max().item<double>() > 0);
}

TEST_CASE("A copy of a replica has its kernels") {
  at::set_num_threads(1);
  const Fixture fixture("fused_norms");
  for (const auto kernels : {Kernels::kAuto, Kernels::kTorch}) {
    const ProgramModule module(fixture.program, kernels);
    const auto copy = std::dynamic_pointer_cast<ProgramModule>(module.clone());
    copy->forward(fixture.batch(0)[0]).sum().backward();
    CHECK(has_gradient(*copy, "stem.0.bias") == (kernels == Kernels::kTorch));
  }
}

TEST_CASE("Convolutions of 64 channels are computed by Winograd's tiles, and with direct sums by torch") {
  at::set_num_threads(1);
  const auto program = read_program(testing::fixture_path("plain_winograd"));
  CHECK(program->fused_batch_norms() == 1);
  torch::manual_seed(1);
  const auto X = torch::rand({3, 64, 5, 5});
  const auto output = [&](Kernels kernels, torch::Dtype type) {
    ProgramModule module(program, kernels);
    module.to(type);
    return module.forward(X.to(type)).to(torch::kFloat64);
  };
  const auto exact = output(Kernels::kTorch, torch::kFloat64);
  const auto tiles = output(Kernels::kAuto, torch::kFloat32),
             sums = output(Kernels::kDirect, torch::kFloat32);
  CHECK(torch::allclose(tiles, exact, 1e-5, 1e-5));
  CHECK(torch::allclose(sums, exact, 1e-5, 1e-5));
  CHECK_FALSE(tiles.equal(sums));
  CHECK(tiles.is_contiguous());  // as Python's output
}

}  // namespace
}  // namespace lockstep
