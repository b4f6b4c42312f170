// Trainer::state() and load(): a run that is saved and loaded into a new Trainer before every step is the
// same run, bit by bit. trainer_state_load_test.cpp loads into trainers that differ.
#include <torch/optim/adagrad.h>
#include <torch/optim/rmsprop.h>
#include <torch/utils.h>

#include <lockstep/tests/catch.h>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/parallel/batch_norm/normed_layers.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/trainer_states.h>
#include <lockstep/tests/parallel/training/layouts.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

struct Case {
  std::string name;
  std::function<void(TrainerOptions&)> change;
  std::vector<int> worlds = {1, 4};
  ModelFactory factory = model_factory<NormedLayersImpl>();
};

std::vector<Case> cases() {
  const auto optimizer = [](OptimizerOptions wanted) {
    return [wanted](TrainerOptions& options) { options.replica.optimizer = wanted; };
  };
  const auto matrices = [](const std::string&, const torch::Tensor& param) -> GroupOptions {
    if (param.dim() < 2) return {.weight_decay = 0};
    return {.lr_factor = .5};
  };
  const auto bf16 = [](TrainerOptions& options) {
    options.replica.optimizer.momentum = .9;
    options.replica.precision = Precision::kBf16;
  };
  return {
      {"sgd", [](auto&) {}},
      {"momentum", optimizer({.momentum = .9, .weight_decay = 1e-2})},
      {"nesterov", optimizer({.momentum = .9, .nesterov = true})},
      {"adam", optimizer({.kind = OptimizerKind::kAdam, .weight_decay = .1})},
      {"adamw", optimizer({.kind = OptimizerKind::kAdamW, .weight_decay = .1})},
      {"adamw, groups", optimizer({.kind = OptimizerKind::kAdamW, .weight_decay = .1, .group = matrices})},
      {"a factory's RMSprop, clipped and accumulated",
       [](auto& options) {
         options.lr.lr = .01;
         options.replica.clip_norm = .1;
         options.accumulate = 2;
         options.replica.optimizer.factory = [](std::vector<torch::Tensor> params) {
           return std::make_unique<torch::optim::RMSprop>(
               params, torch::optim::RMSpropOptions(1).momentum(.5).centered(true));
         };
       }},
      {"a factory's Adagrad",
       [](auto& options) {
         options.replica.optimizer.factory = [](std::vector<torch::Tensor> params) {
           return std::make_unique<torch::optim::Adagrad>(params);
         };
       }},
      {"clipped adamw",
       [](auto& options) {
         options.replica.optimizer.kind = OptimizerKind::kAdamW;
         options.replica.clip_norm = .1;
       }},
      {"averaged batch norm, accumulated",
       [](auto& options) {
         options.bn = BnPolicy::kAverage;
         options.accumulate = 2;
         options.replica.optimizer.momentum = .9;
       }},
      {"uneven split",
       [](auto& options) {
         options.split = {3, 1};
       },
       {2}},
      {"invariant",
       [](auto& options) {
         options.replica.invariant = true;
         options.replica.optimizer.momentum = .9;
       }},
      {"an average of the weights",
       [](auto& options) {
         options.replica.optimizer.momentum = .9;
         options.ema = .9;
       }},
      {"fp64, cosine",
       [](auto& options) {
         options.replica.precision = Precision::kFp64;
         options.lr = {.schedule = Schedule::kCosine, .lr = .2, .total_steps = 5, .warmup_steps = 2};
       }},
      {"bf16 weights", bf16, {1, 2}, small_residual_factory(/*batch_norm=*/true)},
      {"batch norms of the whole batch",
       [](auto& options) {
         options.bn = BnPolicy::kSync;
         options.replica.optimizer.momentum = .9;
       },
       {1, 2},
       small_residual_factory(/*batch_norm=*/true)},
  };
}

TrainerOptions options_of(const Case& wanted, int world) {
  auto options = options_for(world);
  wanted.change(options);
  if (options.replica.optimizer.kind != OptimizerKind::kSgd) options.lr.lr = .01;
  return options;
}

// One Trainer for all steps. With `look` its state is read after every step.
Result train_at_once(const ModelFactory& factory, const TrainerOptions& options, bool look = false) {
  torch::manual_seed(7);
  auto trainer = make_trainer(factory, options, std::make_shared<RowSource>(kRows));
  Result result;
  for (const auto& batch : kBatches) {
    trainer.step(batch);
    result.sums.push_back(trainer.take_sums());
    if (look) trainer.state();
  }
  keep_end(trainer, result);
  return result;
}

// A new Trainer for each step, with other weights until it loads the state of the one before.
Result train_with_breaks(const ModelFactory& factory, const TrainerOptions& options) {
  torch::manual_seed(7);
  auto trainer = new_trainer(factory, options);
  Result result;
  for (const auto& batch : kBatches) {
    const auto state = trainer->state();
    trainer.reset();
    torch::manual_seed(state.steps + 100);
    trainer = new_trainer(factory, options);
    trainer->load(state);
    CHECK(trainer->steps_taken() == static_cast<int64_t>(result.sums.size()));
    trainer->step(batch);
    result.sums.push_back(trainer->take_sums());
  }
  keep_end(*trainer, result);
  return result;
}

void check_same(const Result& found, const Result& expected) {
  REQUIRE(found.replicas.size() == expected.replicas.size());
  for (size_t i = 0; i < found.replicas.size(); ++i) {
    INFO("replica " << i);
    CHECK(same_tensors(found.replicas[i], expected.replicas[i]));
  }
  REQUIRE(found.sums.size() == expected.sums.size());
  for (size_t i = 0; i < found.sums.size(); ++i) check_same_sums(found.sums[i], expected.sums[i]);
  check_same_sums(found.evaluation, expected.evaluation);
}

}  // namespace

TEST_CASE("a run that is loaded into a new trainer before every step gives the same bits", "[cpu][slow]") {
  for (const auto& wanted : cases()) {
    for (const int world : wanted.worlds) {
      INFO(wanted.name << ", " << world << " replicas");
      const auto options = options_of(wanted, world);
      const auto expected = train_at_once(wanted.factory, options);
      check_same(train_with_breaks(wanted.factory, options), expected);
      check_same(train_at_once(wanted.factory, options, /*look=*/true), expected);
    }
  }
}

TEST_CASE("each part of the state changes what follows") {
  const auto zero_first = [](std::vector<NamedTensor>& tensors) { tensors.front().tensor.zero_(); };
  const std::vector<std::pair<std::string, Change>> parts = {
      {"steps", [](auto& state) { state.steps += 3; }},
      {"lr", [](auto& state) { state.lr.fixed = .1; }},
      {"model", [&](auto& state) { zero_first(state.model); }},
      {"optimizer", [&](auto& state) { zero_first(state.optimizer); }},
      {"average", [&](auto& state) { zero_first(state.average); }},
      {"buffers", [&](auto& state) { zero_first(state.replicas[1].buffers); }},
      {"rows", [](auto& state) { state.replicas[1].rows_trained += 100; }},
  };
  auto options = options_for(2);
  options.replica.optimizer.momentum = .9;
  options.ema = .9;
  options.bn = BnPolicy::kAverage;
  options.lr = {.schedule = Schedule::kCosine, .lr = .2, .total_steps = 20};
  const auto factory = model_factory<NormedLayersImpl>();
  const auto good = state_after(2, factory, options);
  const auto go_on = [&](const TrainState& state) {
    const auto trainer = new_trainer(factory, options);
    trainer->load(state);
    trainer->step(kBatches[2]);
    trainer->step(kBatches[3]);
    Result result;
    keep_end(*trainer, result);
    return result;
  };
  const auto same = [](const Result& a, const Result& b) {
    return same_tensors(a.replicas[0], b.replicas[0]) && same_tensors(a.replicas[1], b.replicas[1]) &&
           a.evaluation.loss == b.evaluation.loss;
  };
  const auto expected = go_on(good);
  CHECK(same(go_on(good), expected));
  for (const auto& [name, change] : parts) {
    INFO(name);
    auto state = state_after(2, factory, options);
    change(state);
    CHECK_FALSE(same(go_on(state), expected));
  }
}

// Its averages were kept, and set to zero, once per name.
TEST_CASE("invariant: a batch norm that is registered under two names is one") {
  struct TwiceNormed : NormedLayersImpl {
    TwiceNormed() { register_module("again", named_children()["norm"]); }
  };
  auto options = options_for(2);
  options.replica.invariant = true;
  const auto once = state_after(2, model_factory<NormedLayersImpl>(), options);
  const auto twice = state_after(2, model_factory<TwiceNormed>(), options);
  CHECK(same_tensors(twice.replicas[0].buffers, once.replicas[0].buffers));
}
