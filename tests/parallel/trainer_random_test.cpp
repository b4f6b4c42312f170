// Trainers of models and rows that draw random numbers, as dropout does.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/utils.h>

#include <lockstep/tests/catch.h>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/parallel/drawing_net.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/trainer_states.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Weights = std::vector<NamedTensor>;

std::unique_ptr<Trainer> noisy_trainer(const TrainerOptions& options) {
  const SourceFactory noisy = [](torch::Device) { return std::make_shared<NoisySource>(32); };
  return std::make_unique<Trainer>(drawing_factory(), noisy, noisy, options);
}

Weights trained(int, const TrainerOptions& options) {
  const auto trainer = noisy_trainer(options);
  for (const auto& batch : kBatches) trainer->step(batch);
  return trainer->weights();
}

const std::vector<std::pair<std::string, std::function<void(TrainerOptions&)>>> kChanges = {
    {"usual", [](auto&) {}},
    {"micro-batches", [](auto& options) { options.accumulate = 3; }},
    {"invariant", [](auto& options) { options.replica.invariant = true; }},
    {"bf16", [](auto& options) { options.replica.precision = Precision::kBf16; }},
};

}  // namespace

TEST_CASE("with dropout replicas draw the same numbers in one process and in several, in every run") {
  for (const auto& [name, change] : kChanges) {
    for (const int world : {2, 4}) {
      INFO(name << ", " << world << " replicas");
      auto options = options_for(world);
      options.seed = 5;
      change(options);
      const auto expected = trained(0, options);
      for (int run = 0; run < 3; ++run) {
        torch::manual_seed(run);  // no step draws from this one
        CHECK(same_tensors(trained(0, options), expected));
      }
      const bool same_sums = world == 2 || options.replica.invariant;  // others differ by rounding
      for (const auto& layout : {Layout(static_cast<size_t>(world), 1), Layout{1, world - 1}}) {
        INFO(text_of(layout));
        for (const auto& weights : in_processes(layout, options, trained)) {
          if (same_sums) CHECK(same_tensors(weights, expected));
          for (size_t i = 0; i < weights.size(); ++i) {
            CHECK(max_difference(weights[i].tensor, expected[i].tensor) < 1e-6);
          }
        }
      }
      options.seed = 6;
      CHECK_FALSE(same_tensors(trained(0, options), expected));
    }
  }
}

TEST_CASE("invariant: 1, 2, 4 and 8 replicas draw the same numbers for the same rows") {
  auto options = options_for(1);
  options.replica.invariant = true;
  const auto alone = trained(0, options);
  for (const int world : {2, 4, 8}) {
    INFO(world << " replicas");
    options.devices = options_for(world).devices;
    CHECK(same_tensors(trained(0, options), alone));
  }
  options.replica.invariant = false;
  const auto eight = trained(0, options);
  options.devices = options_for(1).devices;
  CHECK_FALSE(same_tensors(trained(0, options), eight));
}

TEST_CASE("each step drops what stock torch drops with the seed of (seed, step, rank)") {
  // Python's draws of (5, step, 0).
  const uint64_t seeds[] = {0xae1ed9e08d510f7a, 0xce4113791b547326, 0x338f1f5c6f475de, 0x3159a523b126eaa8,
                            0xd2d48b8169c1da0c};
  auto options = options_for(1);
  options.seed = 5;
  options.replica.precision = Precision::kFp64;
  const auto rows = std::make_shared<RowSource>(32);
  auto trainer = make_trainer(drawing_factory(), options, rows);
  WholeBatch whole(drawing_factory(), torch::optim::SGDOptions(options.lr.lr));
  auto generator = at::detail::getDefaultCPUGenerator();
  for (size_t step = 0; step < kBatches.size(); ++step) {
    INFO("step " << step);
    trainer.step(kBatches[step]);
    generator.set_current_seed(seeds[step]);
    whole.step(rows->batch(kBatches[step]));
    const auto expected = whole.module().named_parameters();
    for (const auto& [name, tensor] : trainer.weights()) {
      CHECK(max_difference(tensor, *expected.find(name)) <= 1e-13);
    }
  }
}

TEST_CASE(
    "a run with dropout that is resumed before every step gives the same bits, with no generator stored") {
  for (const auto& [name, change] : kChanges) {
    for (const int world : {1, 2, 4}) {
      INFO(name << ", " << world << " replicas");
      auto options = options_for(world);
      change(options);
      const auto expected = trained(0, options);
      auto trainer = noisy_trainer(options);
      for (const auto& batch : kBatches) {
        auto state = trainer->state();
        for (auto& replica : state.replicas) replica.host_generator = torch::Tensor();
        trainer = noisy_trainer(options);
        trainer->load(state);
        trainer->step(batch);
      }
      CHECK(same_tensors(trainer->weights(), expected));
    }
  }
}

TEST_CASE("what a program draws between steps goes on after a break") {
  const auto options = options_for(2);
  torch::manual_seed(4);
  auto trainer = noisy_trainer(options);
  trainer->step(kBatches[0]);
  torch::rand({3});
  const auto state = trainer->state();
  const auto expected = torch::rand({3});
  trainer = noisy_trainer(options);
  torch::manual_seed(1);
  trainer->load(state);
  trainer->step(kBatches[1]);
  CHECK(torch::rand({3}).equal(expected));
}

TEST_CASE("a program draws on as the state of its first replica says, whatever those of the others are") {
  auto trainer = noisy_trainer(options_for(4));
  auto state = trainer->state();
  torch::manual_seed(9);
  const auto other = at::detail::getDefaultCPUGenerator().get_state();
  for (size_t rank = 1; rank < state.replicas.size(); ++rank) state.replicas[rank].host_generator = other;
  for (int time = 0; time < 20; ++time) {  // the replicas load it at the same time
    trainer->load(state);
    CHECK(at::detail::getDefaultCPUGenerator().get_state().equal(state.replicas[0].host_generator));
  }
}

TEST_CASE("a model that draws while it is evaluated gives the same result on any number of replicas") {
  const auto evaluated = [](int, const TrainerOptions& options) {
    auto trainer = make_trainer(drawing_factory(/*also_in_evaluation=*/true), options,
                                std::make_shared<RowSource>(600));  // three blocks
    const auto first = trainer.evaluate();
    check_same_sums(trainer.evaluate(), first);
    return first;
  };
  const auto alone = evaluated(0, options_for(1));
  for (const auto& layout : {Layout{2}, Layout{3}, Layout{1, 1}}) {
    INFO(text_of(layout));
    for (const auto& found : in_processes(layout, {}, evaluated)) check_same_sums(found, alone);
  }
}
