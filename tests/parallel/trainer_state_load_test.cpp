// Trainer::load() of states of other numbers of replicas and processes, of settled shares, and of states that
// do not fit.
#include <lockstep/tests/catch.h>
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/parallel/batch_norm/normed_layers.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/trainer_states.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

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
      check_same_sums(found[process].evaluation, expected[process].evaluation);
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
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double factor : {0., -.5, 1.5, kNan}) {
    refused([&](auto& state) { state.lr.factor = factor; }, "lr has factor ");
  }
  refused([&](auto& state) { state.lr.best = kNan; }, "lr has best nan");
  refused([](auto& state) { state.lr.bad_losses = -1; }, "lr has bad_losses -1");
  refused([](auto& state) { state.lr.fixed = -1; }, "lr has fixed -1");
  refused([](auto& state) { state.split = {1.5, -.5}; }, "no shares of a batch: a replica's share is -0.5");
  refused([](auto& state) { state.split = {0, 0}; }, "no shares of a batch: all shares are 0");

  const auto errors = in_processes({1, 1}, options, [&](int process, const TrainerOptions& own) {
    auto bad = good;
    bad.model.pop_back();
    auto trainer = make_trainer(factory, own);
    const auto error = refusal_of<WeightsError>([&] { trainer.load(process == 0 ? bad : TrainState{}); });
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
  for (const auto& batch : kBatches) {
    trainer.step(batch);
    next.step(batch);
  }
  CHECK(same_tensors(next.weights(), trainer.weights()));
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
