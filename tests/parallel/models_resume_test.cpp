// The product's models with lockstep's kernels: a run that goes on from its state gives the same bits.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <lockstep/models/factory.h>
#include <lockstep/tests/models/needs_capability.h>
#include <lockstep/tests/parallel/trainer_cases.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

struct Run {
  std::string model;
  int64_t batch = 8;
  int steps = 0;
  int world = 1;
  OptimizerKind optimizer = OptimizerKind::kSgd;
  Precision precision = Precision::kFp32;
};

std::unique_ptr<Trainer> new_trainer(const Run& run, const std::shared_ptr<RowSource>& rows) {
  auto options = options_for(run.world);
  options.replica.precision = run.precision;
  options.replica.optimizer = {.kind = run.optimizer,
                               .momentum = run.optimizer == OptimizerKind::kSgd ? .9 : 0};
  options.lr.lr = run.optimizer == OptimizerKind::kSgd ? .05 : 1e-3;
  const auto factory = make_model_factory({.name = run.model, .dtype = dtype_of(run.precision)});
  return std::unique_ptr<Trainer>(new Trainer(make_trainer(factory, options, rows)));
}

// Each step has other rows.
void take_step(Trainer& trainer, const Run& run) {
  Rows rows(static_cast<size_t>(run.batch));
  for (int64_t i = 0; i < run.batch; ++i) {
    rows[static_cast<size_t>(i)] = (7 * (trainer.steps_taken() * run.batch + i)) % 320;
  }
  trainer.step(rows);
}

// Goes on from the state after each of the steps `from`; compares the weights of every replica three steps on
// and, every thirteenth time, at the end.
void check_goes_on(const Run& run, std::span<const int> from) {
  const auto rows = std::make_shared<RowSource>(320);
  std::map<int, TrainState> states;                              // by steps taken
  std::map<int, std::vector<std::vector<NamedTensor>>> weights;  // [steps taken][local]
  const auto wanted = [&](int step) {
    return step <= 2 || step == run.steps || std::find(from.begin(), from.end(), step - 3) != from.end();
  };
  const auto all_weights = [&](Trainer& trainer) {
    std::vector<std::vector<NamedTensor>> all;
    for (int local = 0; local < run.world; ++local) all.push_back(trainer.weights(local));
    return all;
  };
  const auto whole = new_trainer(run, rows);
  for (int step = 0; step <= run.steps; ++step) {
    if (std::find(from.begin(), from.end(), step) != from.end()) states[step] = whole->state();
    if (wanted(step)) weights[step] = all_weights(*whole);
    if (step < run.steps) take_step(*whole, run);
  }
  for (const int begin : from) {
    INFO(run.model << ", " << run.world << " replicas, goes on from step " << begin);
    const auto trainer = new_trainer(run, rows);
    const int end = begin % 13 == 0 ? run.steps : std::min(begin + 3, run.steps);
    torch::manual_seed(static_cast<uint64_t>(begin) + 100);
    trainer->load(states.at(begin));
    for (int step = begin + 1; step <= end; ++step) {
      take_step(*trainer, run);
      if (step != begin + 3 && step != end) continue;
      const auto found = all_weights(*trainer);
      for (size_t local = 0; local < found.size(); ++local) {
        CHECK(same_tensors(found[local], weights.at(step)[local]));
      }
    }
  }
  CHECK_FALSE(same_tensors(weights.at(1)[0], weights.at(2)[0]));
}

const std::vector<int> kResNet18Steps = {0, 1, 3};

}  // namespace

TEST_CASE("LeNet goes on from every step of forty with the same bits", "[cpu][slow]") {
  std::vector<int> every(40);
  for (int step = 0; step < 40; ++step) every[static_cast<size_t>(step)] = step;
  // Each optimizer and precision, each number of replicas.
  using enum OptimizerKind;
  const std::tuple<int, OptimizerKind, Precision> ways[] = {
      {1, kSgd, Precision::kFp32}, {2, kAdamW, Precision::kFp32}, {4, kSgd, Precision::kBf16}};
  for (const auto& [world, optimizer, precision] : ways) {
    check_goes_on(
        {.model = "lenet", .steps = 40, .world = world, .optimizer = optimizer, .precision = precision},
        every);
  }
}

TEST_CASE("ResNet-18 goes on with the same bits", "[cpu][slow]") {
  check_goes_on({.model = "resnet18", .steps = 6}, kResNet18Steps);
  check_goes_on({.model = "resnet18", .steps = 6, .world = 2, .optimizer = OptimizerKind::kAdamW},
                kResNet18Steps);
}

TEST_CASE("ResNet-18 in bfloat16 goes on with the same bits", "[cpu][slow]") {
  NEEDS_CAPABILITY(CpuCapability::kAvx512);  // torch's convolutions in bfloat16 take minutes without it
  check_goes_on({.model = "resnet18", .steps = 6, .world = 2, .precision = Precision::kBf16}, kResNet18Steps);
}
