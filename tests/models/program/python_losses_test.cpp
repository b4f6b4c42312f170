// Trains the fixtures as make_fixtures.py does. Losses are Python's: with the same bits on the CPU on which
// Python ran, within 1e-6 of them on others, which may add in another order.
#include <ATen/Parallel.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <optional>

#include <lockstep/parallel/training/precision.h>
#include <lockstep/tests/catch.h>
#include <lockstep/tests/models/program/fixture.h>

namespace lockstep {
namespace {

using testing::Fixture;

struct Trained {
  std::vector<double> losses = {};
  double evaluation = 0;
  std::shared_ptr<ProgramModule> module = {};
};

// The mean over what the loss counts: rows, or tokens.
torch::Tensor mean_loss(const Model& model, const Batch& batch) {
  const auto loss = model.loss_sum(batch).loss;
  return model.weight ? loss / model.weight(batch).to(loss.scalar_type()) : loss / batch.rows();
}

Trained train_like_python(const Fixture& fixture, Precision precision, Kernels kernels) {
  const auto model = fixture.factory(kernels)();
  std::vector<torch::Tensor> trained;
  for (const auto& parameter : model.module->parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  const auto& numbers = fixture.numbers;
  torch::optim::SGD sgd(trained, torch::optim::SGDOptions(numbers.at("lr")).momentum(numbers.at("momentum")));
  Trained result{.module = std::dynamic_pointer_cast<ProgramModule>(model.module)};
  for (int64_t step = 0; step < 20; ++step) {
    if (!numbers.at("seed").is_null()) torch::manual_seed(numbers.at("seed").get<uint64_t>() + step);
    sgd.zero_grad();
    torch::Tensor loss;
    {
      const AutocastGuard autocast(precision, torch::kCPU);
      loss = mean_loss(model, fixture.batch(step));
    }
    loss.backward();
    sgd.step();
    result.losses.push_back(loss.item<double>());
  }
  model.module->eval();
  const torch::NoGradGuard no_grad;
  const AutocastGuard autocast(precision, torch::kCPU);
  result.evaluation = mean_loss(model, fixture.batch(0)).item<double>();
  return result;
}

void check_like_python(const std::string& name, Precision precision, const std::string& key, double tolerance,
                       Kernels kernels = Kernels::kTorch) {
  INFO(name << " in " << key);
  at::set_num_threads(1);
  const Fixture fixture(name);
  const auto& python = fixture.run(key);
  const auto own = train_like_python(fixture, precision, kernels);
  const std::vector<double> losses = python.at("losses");
  REQUIRE(own.losses.size() == losses.size());
  int same = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    INFO("step " << i);
    CHECK_THAT(own.losses[i], Catch::Matchers::WithinRel(losses[i], tolerance) ||
                                  Catch::Matchers::WithinAbs(losses[i], 1e-7));
    same += own.losses[i] == losses[i];
  }
  CHECK_THAT(own.evaluation,
             Catch::Matchers::WithinRel(python.at("evaluation").get<double>(), 2 * tolerance));
  if (std::getenv("LOCKSTEP_SHOW_BITS"))
    std::printf("%s %s: %d of 20 with the same bits\n", name.c_str(), key.c_str(), same);
  const auto state = own.module->state_dict();
  REQUIRE(state.size() == python.at("weights").size());
  for (const auto& [weight, tensor] : state) {
    INFO(weight);
    CHECK_THAT(tensor.to(torch::kFloat64).abs().sum().item<double>(),
               Catch::Matchers::WithinRel(python.at("weights").at(weight).get<double>(), 5 * tolerance) ||
                   Catch::Matchers::WithinAbs(python.at("weights").at(weight).get<double>(), 1e-5));
  }
}

TEST_CASE("Twenty losses, the evaluation and the weights of each fixture are Python's") {
  const auto name = GENERATE(from_range(testing::kFixtures));
  const auto [precision, key, tolerance] = GENERATE(table<Precision, std::string, double>(
      {{Precision::kFp32, "fp32", 2e-6}, {Precision::kBf16, "bf16", 1e-2}}));
  check_like_python(name, precision, key, tolerance);
}

TEST_CASE("Lockstep's kernels train a program as Python does, but for rounding") {
  const auto kernels = GENERATE(Kernels::kAuto, Kernels::kDirect);
  const auto [precision, key, tolerance] = GENERATE(table<Precision, std::string, double>(
      {{Precision::kFp32, "fp32", 5e-5}, {Precision::kBf16, "bf16", .1}}));
  check_like_python("fused_norms", precision, key, tolerance, kernels);
}

TEST_CASE("Tensors of Python's default type are made in it, also where that is not torch's own") {
  check_like_python("default_fp64", Precision::kFp64, "fp64", 1e-13);
}

}  // namespace
}  // namespace lockstep
