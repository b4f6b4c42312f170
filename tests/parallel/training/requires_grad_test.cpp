// Parameters that are frozen and unfrozen while a Trainer trains. Stock torch's optimizers leave a frozen
// parameter alone, since it has no gradient, and begin with it when it has one: they are the reference.
#include <torch/optim/adam.h>

#include <lockstep/tests/catch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/trainer_states.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/plain_training.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

constexpr size_t kSteps = 9;

// Sets which parameters a step trains. The factory's models are as before step 0.
void set_flags(torch::nn::Module& module, size_t step) {
  auto params = module.named_parameters();
  params["inner"].requires_grad_(step >= 3);
  params["outer_bias"].requires_grad_(step < 6);
}

void set_flags(Trainer& trainer, size_t step) {
  for (int local = 0; local < trainer.local_size(); ++local) set_flags(*trainer.model(local).module, step);
}

ModelFactory frozen_layers() {
  return [] {
    auto model = two_layers()();
    set_flags(*model.module, 0);
    return model;
  };
}

const Rows& batch(size_t step) { return kBatches[step % kBatches.size()]; }

// Two of the four parameters have no weight decay, and one has another rate.
OptimizerOptions with_groups(OptimizerOptions options) {
  options.group = [](const std::string& name, const torch::Tensor& param) -> GroupOptions {
    if (param.dim() < 2) return {.weight_decay = 0};
    return {.lr_factor = name == "outer" ? .5 : 1};
  };
  return options;
}

std::vector<TrainingCase> unfreezing_cases() {
  const OptimizerOptions momentum{.momentum = .9, .weight_decay = .01};
  return {{"momentum", momentum},
          {"adamw", {.kind = OptimizerKind::kAdamW, .weight_decay = .1}, .01},
          {"adam", {.kind = OptimizerKind::kAdam, .weight_decay = .1}, .01},
          {"momentum, groups", with_groups(momentum)},
          {"adamw, groups", with_groups({.kind = OptimizerKind::kAdamW, .weight_decay = .1}), .01},
          {"a factory's adam",
           {.factory =
                [](std::vector<torch::Tensor> params) {
                  return std::make_unique<torch::optim::Adam>(params, torch::optim::AdamOptions(.01));
                }},
           .01},
          {"kZero", momentum, .2, 0,
           [](auto& options) { options.replica.sync.unused = UnusedParameters::kZero; }},
          {"parameterwise, micro-batches", momentum, .2, 0,
           [](auto& options) {
             options.replica.sync.mode = SyncMode::kParameterwise;
             options.accumulate = 2;
           }},
          {"two in flight", momentum, .2, 0, [](auto& options) { options.in_flight = 2; }},
          {"invariant", momentum, .2, 0, [](auto& options) { options.replica.invariant = true; }}};
}

// With steps in flight, too.
void step_with_flags(Trainer& trainer, size_t step) {
  set_flags(trainer, step);
  trainer.step(batch(step));
}

}  // namespace

TEST_CASE("parameters that are frozen and unfrozen between steps train as with torch's optimizers") {
  const int world = GENERATE(1, 2, 4);
  const RowSource rows(32);
  for (const auto& wanted : unfreezing_cases()) {
    INFO(wanted.name << ", " << world << " replicas");
    PlainTraining plain(frozen_layers(), wanted);
    auto options = wanted.options(world, Precision::kFp64);
    auto trainer = make_trainer(frozen_layers(), options);
    std::vector<NamedTensor> before_frozen;
    for (size_t step = 0; step < kSteps; ++step) {
      set_flags(plain.module(), step);
      plain.step(rows.batch(batch(step)));
      if (step == 6) before_frozen = trainer.weights();
      step_with_flags(trainer, step);
    }
    trainer.check_sync();
    const auto found = trainer.weights(world - 1);
    const auto expected = plain.module().named_parameters();
    for (const auto& [name, tensor] : found) {
      if (const auto* param = expected.find(name)) {
        INFO(name);
        CHECK(relative_error(tensor, *param) < 1e-11);
      }
    }
    const auto at = [](const auto& weights) {
      return std::find_if(weights.begin(), weights.end(), [](auto& w) { return w.name == "outer_bias"; });
    };
    CHECK(at(found)->tensor.equal(at(before_frozen)->tensor));
  }
}

TEST_CASE("what is frozen or unfrozen before the first step is as if the factory had done it") {
  const bool adamw = GENERATE(false, true);
  auto options = options_for(2);
  options.replica.precision = Precision::kBf16;
  options.replica.optimizer.momentum = .9;
  if (adamw) options.replica.optimizer = {.kind = OptimizerKind::kAdamW};
  if (adamw) options.lr.lr = .01;
  const auto freeze = [](torch::nn::Module& module, bool frozen) {
    module.parameters().front().requires_grad_(!frozen);
  };
  const auto factory = [&](bool frozen) -> ModelFactory {
    return [=] {
      auto model = small_residual_factory(/*batch_norm=*/true)();
      freeze(*model.module, frozen);
      return model;
    };
  };
  for (const bool frozen : {true, false}) {
    auto changed = make_trainer(factory(!frozen), options), expected = make_trainer(factory(frozen), options);
    for (int local = 0; local < 2; ++local) freeze(*changed.model(local).module, frozen);
    for (const auto& rows : kBatches) {
      changed.step(rows);
      expected.step(rows);
    }
    CHECK(same_tensors(changed.weights(), expected.weights()));
    CHECK(same_tensors(changed.state().optimizer, expected.state().optimizer));
  }
}

TEST_CASE("a run that freezes and unfreezes goes on from each of its states with the same bits") {
  const int world = GENERATE(1, 2);
  for (const auto& wanted : unfreezing_cases()) {
    INFO(wanted.name << ", " << world << " replicas");
    const auto options = wanted.options(world);
    auto whole = make_trainer(frozen_layers(), options);
    auto part = new_trainer(frozen_layers(), options);
    for (size_t step = 0; step < kSteps; ++step) {
      step_with_flags(whole, step);
      const auto state = part->state();
      part = new_trainer(frozen_layers(), options);
      set_flags(*part, step == 0 ? 0 : step - 1);
      part->load(state);
      step_with_flags(*part, step);
    }
    CHECK(same_tensors(part->weights(), whole.weights()));
    CHECK(same_tensors(part->state().optimizer, whole.state().optimizer));
  }
}

TEST_CASE("AdamW's steps are counted by parameter once they differ, and a state of either kind is loaded") {
  const auto options = unfreezing_cases()[1].options(2);
  const auto counts = [](const TrainState& state) {
    std::vector<std::pair<std::string, double>> result;
    for (const auto& [name, tensor] : state.optimizer) {
      if (name.starts_with("step")) result.emplace_back(name, tensor.item<double>());
    }
    return result;
  };
  const auto train = [](Trainer& trainer, size_t first, size_t last) {
    for (size_t step = first; step < last; ++step) step_with_flags(trainer, step);
  };
  using Counts = std::vector<std::pair<std::string, double>>;
  auto trainer = make_trainer(frozen_layers(), options);
  train(trainer, 0, 3);
  CHECK(counts(trainer.state()) == Counts{{"step", 3}});
  train(trainer, 3, 5);
  const auto state = trainer.state();
  CHECK(counts(state) ==
        Counts{{"step.inner", 2}, {"step.inner_bias", 5}, {"step.outer", 5}, {"step.outer_bias", 5}});

  auto all = make_trainer(two_layers(), options);  // all are trained from the first step on
  for (size_t step = 0; step < 4; ++step) all.step(batch(step));
  const auto of_all = all.state();
  CHECK(counts(of_all) == Counts{{"step", 4}});
  all.step(batch(4));
  const auto expected = all.weights();
  trainer.load(of_all);
  trainer.step(batch(4));
  CHECK(same_tensors(trainer.weights(), expected));
  CHECK(counts(trainer.state()) == Counts{{"step", 5}});
  all.load(state);
  CHECK(counts(all.state()) == counts(state));
  auto missing = state;
  std::erase_if(missing.optimizer, [](const auto& kept) { return kept.name == "step.outer"; });
  CHECK_THROWS_AS(all.load(missing), WeightsError);
}

TEST_CASE(
    "a state of a run that trains other parameters is refused by the parameter's name, until they agree") {
  const bool frozen_here = GENERATE(true, false);
  const auto wanted = unfreezing_cases()[GENERATE(0U, 1U)];  // momentum, adamw
  const auto options = wanted.options(2);
  const auto here = frozen_here ? frozen_layers() : two_layers();
  auto saved = make_trainer(frozen_here ? two_layers() : frozen_layers(), options);
  saved.step(kBatches[0]);
  const auto state = saved.state();
  auto trainer = make_trainer(here, options);
  CHECK_THAT(
      refusal_and_hint<WeightsError>([&] { trainer.load(state); }),
      StartsWith(frozen_here
                     ? "parameter inner was trained when the state was saved, but is frozen here | "
                     : "parameter inner was frozen when the state was saved, but is trained here | ") &&
          ContainsSubstring("before load() call requires_grad_()"));
  for (int local = 0; local < 2; ++local) {
    trainer.model(local).module->named_parameters()["inner"].requires_grad_(frozen_here);
  }
  trainer.load(state);
  saved.step(kBatches[1]);
  trainer.step(kBatches[1]);
  CHECK(same_tensors(trainer.weights(), saved.weights()));
}

TEST_CASE("replicas whose requires_grad has changed differently get one error that names the parameter") {
  const auto refusal = [](Trainer& trainer) { return refusal_of([&] { trainer.step(kBatches[0]); }); };
  const std::string expected =
      "the models differ: rank 1 has inner [784, 6] Float, frozen where rank 0 has inner [784, 6] Float";
  auto trainer = make_trainer(frozen_layers(), options_for(3));
  trainer.step(kBatches[0]);
  for (const int local : {0, 2}) trainer.model(local).module->named_parameters()["inner"].requires_grad_();
  CHECK(refusal(trainer) == expected);
  auto of_last = make_trainer(frozen_layers(), options_for(2));
  of_last.step(kBatches[0]);
  of_last.model(1).module->named_parameters()["inner"].requires_grad_();
  CHECK(refusal(of_last) ==
        "the models differ: rank 1 has inner [784, 6] Float where rank 0 has inner [784, 6] Float, frozen");

  const auto errors = in_processes({1, 1}, {}, [&](int process, const TrainerOptions& own) {
    auto of_process = make_trainer(frozen_layers(), own);
    of_process.step(kBatches[0]);
    auto params = of_process.model(0).module->named_parameters();
    process == 0 ? params["inner"].requires_grad_() : params["outer"].requires_grad_(false);
    return refusal(of_process);
  });
  CHECK(errors == std::vector<std::string>(2, expected));
}

TEST_CASE("a state has nothing of what was frozen since the last step") {
  auto options = options_for(2);
  options.replica.optimizer.momentum = .9;
  auto trainer = make_trainer(two_layers(), options);
  trainer.step(kBatches[0]);
  trainer.synchronize();
  for (int local = 0; local < 2; ++local) {
    trainer.model(local).module->named_parameters()["inner"].requires_grad_(false);
  }
  std::set<std::string> names;
  for (const auto& kept : trainer.state().optimizer) names.insert(kept.name);
  CHECK(names == std::set<std::string>{"momentum_buffer.inner_bias", "momentum_buffer.outer",
                                       "momentum_buffer.outer_bias"});
}

TEST_CASE("a parameter that is frozen leaves the memory of those that are trained") {
  auto trainer = make_trainer(two_layers(), options_for(1));
  const auto inner = trainer.model(0).module->named_parameters()["inner"];
  trainer.step(kBatches[0]);
  trainer.synchronize();
  CHECK(inner.storage().nbytes() > inner.nbytes());
  inner.requires_grad_(false);
  trainer.step(kBatches[1]);
  trainer.synchronize();
  CHECK(inner.storage().nbytes() == inner.nbytes());
}

TEST_CASE("processes that change the same flags train as one process") {
  const auto trained = [](int, const TrainerOptions& own) {
    auto trainer = make_trainer(frozen_layers(), own);
    for (size_t step = 0; step < kSteps; ++step) step_with_flags(trainer, step);
    return trainer.weights();
  };
  auto options = unfreezing_cases()[4].options(1);  // adamw, groups
  options.replica.precision = Precision::kFp64;
  const auto alone = in_processes({3}, options, trained)[0];
  for (const auto& found : in_processes({1, 2}, options, trained)) {
    for (size_t i = 0; i < alone.size(); ++i) {
      CHECK(relative_error(found[i].tensor, alone[i].tensor) < 1e-11);
    }
  }
}
