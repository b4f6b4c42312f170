// TrainerOptions::ema: a Trainer that evaluates with an average of its weights.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/batch_norm/normed_layers.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/trainer_states.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr double kDecay = .75;

TrainerOptions averaging(int world) {
  auto options = options_for(world);
  options.replica.optimizer.momentum = .9;
  options.ema = kDecay;
  return options;
}

// Evaluates 32 rows.
std::unique_ptr<Trainer> small_trainer(const ModelFactory& factory, const TrainerOptions& options) {
  return std::unique_ptr<Trainer>(new Trainer(make_trainer(factory, options)));
}

ModelFactory normed() { return model_factory<NormedLayersImpl>(); }

bool is_buffer(const std::string& name) { return name == "own" || name.find("running") != std::string::npos; }

// A trainer whose weights are these, for the loss of its test set.
double loss_with(const ModelFactory& factory, const std::vector<NamedTensor>& weights,
                 const TrainerOptions& options) {
  auto plain = options;
  plain.ema = 0;
  const auto trainer = small_trainer(factory, plain);
  auto state = trainer->state();
  state.model = weights;
  for (auto& replica : state.replicas) {
    for (auto& buffer : replica.buffers) {
      const auto same = std::find_if(weights.begin(), weights.end(),
                                     [&](const auto& tensor) { return tensor.name == buffer.name; });
      buffer.tensor = same->tensor;
    }
  }
  trainer->load(state);
  return trainer->evaluate().loss;
}

}  // namespace

TEST_CASE("the averaged weights follow the weights of each step, with the buffers of training") {
  for (const int world : {1, 2}) {
    const auto trainer = small_trainer(normed(), averaging(world));
    check_same_tensors(trainer->averaged_weights(), trainer->weights());  // before the first step
    std::vector<NamedTensor> expected;
    for (const auto& rows : kBatches) {
      if (rows.size() < 4) continue;  // a batch norm needs more than one value
      trainer->step(rows);
      const auto trained = trainer->weights();
      const bool first = expected.empty();
      if (first) expected = trained;
      const auto found = trainer->averaged_weights();
      for (size_t i = 0; i < trained.size(); ++i) {
        INFO(trained[i].name << ", " << world << " replicas, step " << trainer->steps_taken());
        if (!trained[i].tensor.is_floating_point() || is_buffer(trained[i].name)) {
          CHECK(found[i].tensor.equal(trained[i].tensor));
          continue;
        }
        if (!first) expected[i].tensor = expected[i].tensor * kDecay + trained[i].tensor * (1 - kDecay);
        CHECK(max_difference(found[i].tensor, expected[i].tensor) <= 1e-6);
      }
    }
    for (int local = 1; local < world; ++local) {
      check_same_tensors(trainer->averaged_weights(local), trainer->averaged_weights(0));
    }
  }
}

TEST_CASE("an average changes no step, and evaluations use it and leave the weights as they were") {
  for (const int world : {1, 2}) {
    for (const auto precision : {Precision::kFp32, Precision::kFp64}) {
      auto options = averaging(world);
      options.replica.precision = precision;
      const auto trainer = small_trainer(two_layers(), options);
      options.ema = 0;
      const auto without = small_trainer(two_layers(), options);
      for (const auto& rows : kBatches) {
        trainer->step(rows);
        without->step(rows);
        const auto before = trainer->weights();
        const double loss = trainer->evaluate().loss;
        check_same_tensors(trainer->weights(), before);
        CHECK(loss == loss_with(two_layers(), trainer->averaged_weights(), options));
        if (trainer->steps_taken() > 1) CHECK(loss != without->evaluate().loss);
      }
      check_same_tensors(trainer->weights(), without->weights());
      check_same_tensors(without->averaged_weights(), without->weights());
    }
  }
}

TEST_CASE("an evaluation that throws leaves the weights as they were") {
  const auto trainer = small_trainer(two_layers(), averaging(2));
  for (const auto& rows : kBatches) trainer->step(rows);
  const auto before = trainer->weights();
  const auto averaged = trainer->averaged_weights();
  CHECK_THROWS_AS(trainer->evaluate([](int64_t, int64_t) { throw std::runtime_error("enough"); }),
                  std::runtime_error);
  check_same_tensors(trainer->weights(), before);
  check_same_tensors(trainer->averaged_weights(), averaged);
}

TEST_CASE("bf16 weights follow the average in an evaluation, and the weights in the next step") {
  auto options = averaging(1);
  options.replica.precision = Precision::kBf16;
  const auto factory = small_residual_factory();
  const auto trainer = small_trainer(factory, options);
  const auto once = small_trainer(factory, options);
  for (const auto& rows : kBatches) {
    trainer->step(rows);
    once->step(rows);
    CHECK(trainer->evaluate().loss == loss_with(factory, trainer->averaged_weights(), options));
  }
  check_same_tensors(trainer->weights(), once->weights());
}

TEST_CASE("processes have one average, which goes on from process 0's state") {
  const auto options = averaging(1);
  const auto train = [&](const Layout& layout, bool breaks) {
    return in_processes(layout, options, [&](int process, const TrainerOptions& own) {
      auto trainer = make_trainer(two_layers(), own);
      for (size_t step = 0; step < kBatches.size(); ++step) {
        if (breaks && step == 2) {
          const auto state = trainer.state();
          trainer.load(process == 0 ? state : TrainState{});
        }
        trainer.step(kBatches[step]);
      }
      return trainer.averaged_weights();
    });
  };
  const auto expected = train({2, 1}, false);
  for (const auto& found : {expected, train({2, 1}, true)}) {
    for (const auto& weights : found) check_same_tensors(weights, expected.front());
  }
}

TEST_CASE("a state without an average begins one, and one with an average needs a trainer that has one") {
  const auto averaged = averaging(2);
  auto plain = averaged;
  plain.ema = 0;
  const auto state = state_after(2, two_layers(), averaged);
  CHECK(state.average.size() == 4);
  CHECK(state_after(0, two_layers(), averaged).average.empty());
  CHECK(state_after(2, two_layers(), plain).average.empty());

  const auto other = small_trainer(two_layers(), plain);
  const auto before = other->weights();
  CHECK_THROWS_AS(other->load(state), WeightsError);
  CHECK_THROWS_WITH(other->load(state), ContainsSubstring("average") && ContainsSubstring("ema"));
  check_same_tensors(other->weights(), before);
  auto cleared = state;
  cleared.average.clear();
  CHECK_NOTHROW(other->load(cleared));

  const auto trainer = small_trainer(two_layers(), averaged);
  trainer->step(kBatches[0]);
  trainer->load(cleared);
  check_same_tensors(trainer->averaged_weights(), trainer->weights());
  trainer->step(kBatches[2]);
  check_same_tensors(trainer->averaged_weights(), trainer->weights());
  auto damaged = state;
  damaged.average.pop_back();
  CHECK_THROWS_WITH(trainer->load(damaged), ContainsSubstring("of the average's"));
}

TEST_CASE("a parameter that is frozen is evaluated as it is, and averaged again once it is trained") {
  const auto trainer = small_trainer(two_layers(), averaging(2));
  const auto freeze = [&](bool frozen) {
    for (int local = 0; local < trainer->local_size(); ++local) {
      trainer->model(local).module->named_parameters()["inner"].requires_grad_(!frozen);
    }
  };
  const auto inner = [](const std::vector<NamedTensor>& weights) { return weights.front().tensor; };
  for (int step = 0; step < 3; ++step) trainer->step(kBatches[static_cast<size_t>(step)]);
  CHECK_FALSE(inner(trainer->averaged_weights()).equal(inner(trainer->weights())));
  freeze(true);
  CHECK(inner(trainer->averaged_weights()).equal(inner(trainer->weights())));  // before a step has followed
  CHECK_FALSE(trainer->averaged_weights()[1].tensor.equal(trainer->weights()[1].tensor));
  trainer->step(kBatches[3]);
  const auto frozen = inner(trainer->weights());
  CHECK(inner(trainer->averaged_weights()).equal(frozen));
  CHECK_FALSE(trainer->averaged_weights()[1].tensor.equal(trainer->weights()[1].tensor));
  freeze(false);
  trainer->step(kBatches[4]);
  const auto expected = frozen * kDecay + inner(trainer->weights()) * (1 - kDecay);
  CHECK(max_difference(inner(trainer->averaged_weights()), expected) <= 1e-6);
}
