// Trainer::state() and load(): a run that is saved and loaded into a new Trainer before every step is the
// same run, bit by bit.
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <lockstep/models/resnet18.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/normed_layers.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int64_t kRows = 600;  // three blocks of an evaluation

struct Case {
  std::string name;
  std::function<void(TrainerOptions&)> change;
  std::vector<int> worlds = {1, 2, 4};
  ModelFactory factory = model_factory<NormedLayersImpl>();
};

std::vector<Case> cases() {
  const auto optimizer = [](OptimizerOptions wanted) {
    return [wanted](TrainerOptions& options) { options.replica.optimizer = wanted; };
  };
  const auto bf16 = [](TrainerOptions& options) {
    options.replica.optimizer.momentum = .9;
    options.replica.precision = Precision::kBf16;
  };
  return {
      {"sgd", [](auto&) {}},
      {"momentum", optimizer({.momentum = .9, .weight_decay = 1e-2})},
      {"nesterov", optimizer({.momentum = .9, .nesterov = true})},
      {"adamw", optimizer({.kind = OptimizerKind::kAdamW, .weight_decay = .1})},
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
      {"fp64, cosine",
       [](auto& options) {
         options.replica.precision = Precision::kFp64;
         options.lr = {.schedule = Schedule::kCosine, .lr = .2, .total_steps = 5, .warmup_steps = 2};
       }},
      {"bf16 weights", bf16, {1, 2}, small_residual_factory(/*batch_norm=*/true)},
  };
}

TrainerOptions options_of(const Case& wanted, int world) {
  auto options = options_for(world);
  wanted.change(options);
  if (options.replica.optimizer.kind == OptimizerKind::kAdamW) options.lr.lr = .01;
  return options;
}

struct Result {
  std::vector<std::vector<NamedTensor>> replicas;  // [local]: parameters, and each replica's own buffers
  std::vector<TrainSums> sums;                     // of each step
  Evaluation evaluation;
};

void keep_end(Trainer& trainer, Result& result) {
  const torch::NoGradGuard no_grad;
  result.evaluation = trainer.evaluate();
  for (int local = 0; local < trainer.local_size(); ++local) {
    auto& tensors = result.replicas.emplace_back();
    const auto& module = *trainer.model(local).module;
    for (const auto& item : module.named_parameters()) tensors.push_back({item.key(), item.value().clone()});
    for (const auto& item : module.named_buffers()) tensors.push_back({item.key(), item.value().clone()});
  }
}

using Change = std::function<void(TrainState&)>;

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

std::unique_ptr<Trainer> new_trainer(const ModelFactory& factory, const TrainerOptions& options) {
  return std::unique_ptr<Trainer>(
      new Trainer(make_trainer(factory, options, std::make_shared<RowSource>(kRows))));
}

// A new Trainer for each step, with other weights until it loads the state of the one before.
Result train_with_breaks(const ModelFactory& factory, const TrainerOptions& options,
                         const Change& change = {}) {
  torch::manual_seed(7);
  auto trainer = new_trainer(factory, options);
  Result result;
  for (const auto& batch : kBatches) {
    auto state = trainer->state();
    if (change && state.steps > 0) change(state);
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

bool same_tensors(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || !a[i].tensor.equal(b[i].tensor)) return false;
  }
  return true;
}

void check_same(const Result& found, const Result& expected) {
  REQUIRE(found.replicas.size() == expected.replicas.size());
  for (size_t i = 0; i < found.replicas.size(); ++i) {
    INFO("replica " << i);
    CHECK(same_tensors(found.replicas[i], expected.replicas[i]));
  }
  REQUIRE(found.sums.size() == expected.sums.size());
  for (size_t i = 0; i < found.sums.size(); ++i) check_same_sums(found.sums[i], expected.sums[i]);
  check_same_evaluation(found.evaluation, expected.evaluation);
}

// Draws from torch's default generator in every step.
class DrawingNetImpl : public torch::nn::Module {
 public:
  DrawingNetImpl() : outer_(register_module("outer", torch::nn::Linear(784, 10))) {}
  torch::Tensor forward(const torch::Tensor& X) {
    return outer_(torch::dropout(X.flatten(1), .5, is_training()));
  }

 private:
  torch::nn::Linear outer_;
};

TrainState state_after(int steps, const ModelFactory& factory, const TrainerOptions& options) {
  torch::manual_seed(7);
  auto trainer = make_trainer(factory, options, std::make_shared<RowSource>(kRows));
  for (int step = 0; step < steps; ++step) trainer.step(kBatches[static_cast<size_t>(step)]);
  return trainer.state();
}

}  // namespace

TEST_CASE("a run that is loaded into a new trainer before every step gives the same bits") {
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
      {"model", [&](auto& state) { zero_first(state.model); }},
      {"optimizer", [&](auto& state) { zero_first(state.optimizer); }},
      {"buffers", [&](auto& state) { zero_first(state.replicas[1].buffers); }},
      {"rows", [](auto& state) { state.replicas[1].rows_trained += 100; }},
  };
  auto options = options_for(2);
  options.replica.optimizer.momentum = .9;
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
           a.evaluation.loss_sum == b.evaluation.loss_sum;
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

TEST_CASE("a model that draws random numbers draws the same ones after a break") {
  const auto factory = model_factory<DrawingNetImpl>();
  const auto options = options_for(1);
  const auto expected = train_at_once(factory, options);
  check_same(train_with_breaks(factory, options), expected);
  const auto found = train_with_breaks(
      factory, options, [](auto& state) { state.replicas[0].host_generator = torch::Tensor(); });
  CHECK_FALSE(same_tensors(found.replicas[0], expected.replicas[0]));
}

TEST_CASE("several processes go on from the state that process 0 has") {
  auto options = options_for(1);
  options.replica.optimizer.momentum = .9;
  for (const auto& layout : {Layout{2, 2}, Layout{3, 1}, Layout{1, 1, 1, 1}}) {
    INFO(text_of(layout));
    const auto expected = in_processes(layout, options, [](int, const TrainerOptions& own) {
      auto trainer = make_trainer(small_residual_factory(true), own);
      for (const auto& batch : kBatches) trainer.step(batch);
      Result result;
      keep_end(trainer, result);
      return result;
    });
    std::vector<TrainState> states = in_processes(layout, options, [](int, const TrainerOptions& own) {
      auto trainer = make_trainer(small_residual_factory(true), own);
      for (size_t step = 0; step < 3; ++step) trainer.step(kBatches[step]);
      return trainer.state();
    });
    for (size_t process = 0; process < layout.size(); ++process) {
      CHECK(states[process].steps == 3);
      CHECK(states[process].replicas.size() == 4);
      CHECK(states[process].model.empty() == (process > 0));
      CHECK(states[process].optimizer.empty() == (process > 0));
    }
    const auto found = in_processes(layout, options, [&](int process, const TrainerOptions& own) {
      auto trainer = make_trainer(small_residual_factory(true), own);
      trainer.step(kBatches[4]);  // is forgotten
      trainer.load(process == 0 ? states[0] : TrainState{});
      for (size_t step = 3; step < kBatches.size(); ++step) trainer.step(kBatches[step]);
      Result result;
      keep_end(trainer, result);
      return result;
    });
    for (size_t process = 0; process < layout.size(); ++process) {
      REQUIRE(found[process].replicas.size() == expected[process].replicas.size());
      for (size_t i = 0; i < found[process].replicas.size(); ++i) {
        CHECK(same_tensors(found[process].replicas[i], expected[process].replicas[i]));
      }
      check_same_evaluation(found[process].evaluation, expected[process].evaluation);
    }
  }
}

TEST_CASE("a run goes on with another number of replicas, with the same bits if it is invariant") {
  const bool invariant = GENERATE(true, false);
  const auto factory = small_residual_factory(/*batch_norm=*/invariant);
  auto options = options_for(4);
  options.replica.optimizer.momentum = .9;
  options.replica.invariant = invariant;
  if (!invariant) options.replica.precision = Precision::kFp64;
  const auto state = state_after(2, factory, options);
  const auto go_on = [&](int process, const TrainerOptions& own) {
    const auto trainer = new_trainer(factory, own);
    trainer->load(process == 0 ? state : TrainState{});
    trainer->step(kBatches[2]);
    trainer->step(kBatches[3]);
    return trainer->weights();
  };
  const auto expected = go_on(0, options);
  for (const auto& layout : {Layout{1}, Layout{2}, Layout{2, 2}, Layout{1, 1}}) {
    INFO(text_of(layout) << (invariant ? ", invariant" : ", fp64"));
    for (const auto& weights : in_processes(layout, options, go_on)) {
      if (invariant) CHECK(same_tensors(weights, expected));
      REQUIRE(weights.size() == expected.size());
      for (size_t i = 0; i < weights.size(); ++i) {
        CHECK(max_difference(weights[i].tensor, expected[i].tensor) <= 1e-12);
      }
    }
  }
}

TEST_CASE(
    "on another number of replicas all begin with the model's statistics and an equal part of the rows") {
  const auto factory = model_factory<NormedLayersImpl>();
  const auto policy = GENERATE(BnPolicy::kRoot, BnPolicy::kAverage);
  auto options = options_for(4);
  options.bn = policy;
  const auto state = state_after(2, factory, options);  // 16 + 5 rows
  options = options_for(2);
  options.bn = policy;
  const auto trainer = new_trainer(factory, options);
  trainer->load(state);
  const auto loaded = trainer->state();
  REQUIRE(loaded.replicas.size() == 2);
  for (const auto& replica : loaded.replicas) {
    CHECK(replica.rows_trained == 10);
    for (const auto& buffer : replica.buffers) {
      const auto& model = state.model;
      const auto same = std::find_if(model.begin(), model.end(),
                                     [&](const auto& tensor) { return tensor.name == buffer.name; });
      REQUIRE(same != model.end());
      CHECK(buffer.tensor.equal(same->tensor));
    }
  }
}

TEST_CASE("a state of another model, precision or optimizer is refused, and nothing is changed") {
  const auto factory = small_residual_factory(true);
  auto options = options_for(2);
  options.replica.optimizer.momentum = .9;
  const auto good = state_after(2, factory, options);
  const auto refused = [&](const Change& change, const std::string& text) {
    auto state = good;
    change(state);
    auto trainer = make_trainer(factory, options);
    trainer.load(good);
    CHECK_THROWS_WITH(trainer.load(state), ContainsSubstring(text));
    CHECK_THROWS_AS(trainer.load(state), WeightsError);
    trainer.step(kBatches[2]);
    auto other = make_trainer(factory, options);
    other.load(good);
    other.step(kBatches[2]);
    CHECK(same_tensors(trainer.weights(), other.weights()));
  };
  refused([](auto& state) { state.model.pop_back(); }, "parameters and buffers have no weights");
  refused([](auto& state) { state.model.front().tensor = torch::zeros({3}); }, "has shape [3]");
  refused([](auto& state) { state.model.front().tensor = state.model.front().tensor.to(torch::kFloat64); },
          "is Double, the model's is Float");
  refused([](auto& state) { state.optimizer.clear(); }, "of the optimizer's");
  refused([](auto& state) { state.optimizer.front().name = "exp_avg.stem"; },
          "no parameter named exp_avg.stem");
  refused([](auto& state) { state.replicas[1].buffers.pop_back(); }, "of the replica's");
  refused([](auto& state) { state.steps = -1; }, "step -1");
  refused([](auto& state) { state.steps = INT64_MAX; }, "step 9223372036854775807, 0 to 9007199254740992");
  refused([](auto& state) { state.replicas[1].rows_trained = -1; }, "has trained -1 rows");
  refused([](auto& state) { state.replicas[0].rows_trained = INT64_MAX; }, "has trained 92233720");
  refused(
      [](auto& state) {
        auto& generator = state.replicas[1].host_generator;
        generator = torch::zeros_like(generator);
      },
      "no state of a generator");
  refused([](auto& state) { state.split = {1.5, -.5}; }, "no shares of a batch: a replica's weight is -0.5");
  refused([](auto& state) { state.split = {0, 0}; }, "no shares of a batch: all weights are 0");

  const auto errors = in_processes({1, 1}, options, [&](int process, const TrainerOptions& own) {
    auto bad = good;
    bad.model.pop_back();
    auto trainer = make_trainer(factory, own);
    std::string error;
    try {
      trainer.load(process == 0 ? bad : TrainState{});
    } catch (const WeightsError& refusal) {
      error = refusal.what();
    }
    trainer.load(process == 0 ? good : TrainState{});  // can still be used
    trainer.step(kBatches[2]);
    return error;
  });
  CHECK_THAT(errors[0], ContainsSubstring("have no weights"));
  CHECK_THAT(errors[1], ContainsSubstring("process 0 does not take the state"));
}

TEST_CASE("shares found by timing are kept once they are settled; before that the search starts again") {
  auto options = options_for(2);
  options.auto_split = true;
  const auto factory = lenet_factory();
  auto trainer = make_trainer(factory, options);
  trainer.step(kBatches[0]);
  CHECK(trainer.state().split.empty());
  while (!trainer.split_settled()) trainer.step(kBatches[0]);
  const auto state = trainer.state();
  CHECK(state.split == trainer.split());

  auto next = make_trainer(factory, options);
  next.load(state);
  CHECK(next.split_settled());
  CHECK(next.split() == trainer.split());
  auto unsettled = state;
  unsettled.split.clear();
  next.load(unsettled);
  CHECK_FALSE(next.split_settled());
  auto on_one = make_trainer(factory, [&] {
    auto single = options_for(1);
    single.auto_split = true;
    return single;
  }());
  on_one.load(state);  // of two replicas
  CHECK(on_one.split() == std::vector<double>{1});
}
