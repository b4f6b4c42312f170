// The learning rate of a Trainer: which one holds, and that it is a part of the state.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/trainer_states.h>
#include <lockstep/tests/parallel/training/layouts.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Falls at every loss after the first one.
LrSchedule impatient() {
  return {.schedule = Schedule::kPlateau, .lr = .2, .plateau = {.factor = .5, .patience = 0, .threshold = 0}};
}

TrainerOptions with(LrSchedule lr) {
  auto options = options_for(1);
  options.replica.optimizer.momentum = .9;
  options.lr = std::move(lr);
  return options;
}

// A step of kBatches and what comes after it.
using AfterStep = std::function<void(Trainer&, size_t step)>;

struct Run {
  Result end;
  double lr = 0;  // of the step after it
};

// A run of all batches; with `break_after` its state is loaded into a new trainer after so many steps.
Run run(const TrainerOptions& options, const AfterStep& after,
        std::optional<size_t> break_after = std::nullopt) {
  auto trainer = new_trainer(lenet_factory(), options);
  for (size_t step = 0; step < kBatches.size(); ++step) {
    if (step == break_after) {
      const auto state = trainer->state();
      trainer.reset();
      trainer = new_trainer(lenet_factory(), options);
      trainer->load(trainer->first_rank() == 0 ? state : TrainState{});
    }
    trainer->step(kBatches[step]);
    after(*trainer, step);
  }
  Run result{.end = {}, .lr = trainer->lr()};
  keep_end(*trainer, result.end);
  return result;
}

bool same_weights(const Run& a, const Run& b) {
  return std::ranges::equal(a.end.replicas, b.end.replicas, same_tensors);
}

}  // namespace

TEST_CASE("a rate that is set holds until it is taken back, then the function or the schedule again") {
  auto trainer = make_trainer(lenet_factory(), with({.lr = .2, .total_steps = 4}));
  CHECK(trainer.lr() == .2);
  trainer.set_lr(.05);
  CHECK(trainer.lr() == .05);
  trainer.step(kBatches[0]);
  CHECK(trainer.lr() == .05);
  trainer.set_lr({});
  CHECK(trainer.lr() == .2);

  const auto falling = [](int64_t step) { return .1 / static_cast<double>(step + 1); };
  auto own = make_trainer(lenet_factory(), with({.function = falling}));
  own.step(kBatches[0]);
  CHECK(own.lr() == .05);
  own.set_lr(.3);
  CHECK(own.lr() == .3);
  own.set_lr(std::nullopt);
  own.leave_out_step();
  CHECK(own.lr() == .1 / 3);
}

TEST_CASE("a schedule that spans the run needs the run's steps") {
  for (const auto& [name, schedule] : kScheduleNames) {
    INFO(name);
    for (const int64_t steps : {-1, 0}) {
      const LrSchedule lr{.schedule = schedule, .lr = .2, .total_steps = steps};
      const auto refusal = refusal_of([&] { make_trainer(lenet_factory(), with(lr)); });
      CHECK(refusal == (spans_run(schedule) ? "lr.total_steps is " + std::to_string(steps) : ""));
    }
    CHECK_NOTHROW(make_trainer(lenet_factory(), with({.schedule = schedule, .lr = .2, .total_steps = 1})));
  }
}

TEST_CASE("a step asks for its rate once, and telling of rows does not") {
  int64_t calls = 0;
  auto trainer = make_trainer(lenet_factory(), with({.function = [&](int64_t) { return ++calls, .1; }}));
  trainer.will_need(kBatches[0]);
  CHECK(calls == 0);
  trainer.step(kBatches[0]);
  CHECK(calls == 1);
}

TEST_CASE("a schedule, the function with its rates, and the rates set one by one give the same bits") {
  const LrSchedule schedule{.schedule = Schedule::kOneCycle, .lr = .2, .total_steps = 5};
  const auto rate = [schedule](int64_t step) { return lr_at(schedule, step); };
  const auto nothing = [](Trainer&, size_t) {};
  const auto expected = run(with(schedule), nothing);
  CHECK(same_weights(run(with({.function = rate}), nothing), expected));
  CHECK(same_weights(
      run(with({.lr = rate(0)}),
          [&](Trainer& trainer, size_t step) { trainer.set_lr(rate(static_cast<int64_t>(step) + 1)); }),
      expected));
  CHECK_FALSE(same_weights(run(with({.lr = .2}), nothing), expected));
}

TEST_CASE("what is no rate is refused, and the trainer goes on") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  auto trainer = make_trainer(lenet_factory(), with({.lr = .2}));
  for (const double wrong : {-.1, kNan, kInfinity}) {
    CHECK_THROWS_AS(trainer.set_lr(wrong), UsageError);
    CHECK(trainer.lr() == .2);
  }
  CHECK_THROWS_WITH(trainer.set_lr(-.1), ContainsSubstring("-0.1"));
  double rate = kNan;
  auto own = make_trainer(lenet_factory(), with({.function = [&](int64_t) { return rate; }}));
  CHECK_THROWS_WITH(own.step(kBatches[0]), ContainsSubstring("lr.function(0) is nan"));
  CHECK(own.steps_taken() == 0);
  rate = .1;
  own.step(kBatches[0]);
  CHECK(own.steps_taken() == 1);
}

TEST_CASE("a run that breaks anywhere goes on with its rate, bit by bit, in one process and in two",
          "[cpu][slow]") {
  struct Case {
    std::string name;
    LrSchedule lr;
    AfterStep after;
    double last;  // the rate after all five steps
  };
  const auto nothing = [](Trainer&, size_t) {};
  const Case cases[] = {
      {"one cycle", {.schedule = Schedule::kOneCycle, .lr = .2, .total_steps = 6}, nothing, .2 / 25e4},
      {"exponential",
       {.schedule = Schedule::kExponential, .lr = .2, .exponential = {.gamma = .5, .every = 2}},
       nothing,
       .05},
      {"function",
       {.function = [](int64_t step) { return .5 / static_cast<double>(step + 5); }},
       nothing,
       .05},
      {"plateau", impatient(), [](Trainer& trainer, size_t) { trainer.observe_loss(1); }, .2 / 16},
      {"set",
       {.lr = .2},
       [](Trainer& trainer, size_t step) {
         if (step == 1) trainer.set_lr(.01);
       },
       .01},
      {"taken back",
       {.lr = .2},
       [](Trainer& trainer, size_t step) { trainer.set_lr(step == 1 ? std::optional(.01) : std::nullopt); },
       .2},
  };
  for (const auto& wanted : cases) {
    for (const auto& layout : {Layout{2}, Layout{1, 1}}) {
      const auto options = with(wanted.lr);
      const auto all_of = [&](std::optional<size_t> break_after) {
        return in_processes(layout, options, [&](int, const TrainerOptions& own) {
          return run(own, wanted.after, break_after);
        });
      };
      const auto expected = all_of({});
      CHECK(expected[0].lr == Approx(wanted.last));
      for (size_t step = 1; step < kBatches.size(); ++step) {
        INFO(wanted.name << ", " << text_of(layout) << ", a break after step " << step);
        const auto found = all_of(step);
        REQUIRE(found.size() == expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
          CHECK(found[i].lr == expected[i].lr);
          CHECK(same_weights(found[i], expected[i]));
        }
      }
    }
  }
}

// Each sees the same evaluation. The test set is one block, so three of four replicas see none of it.
TEST_CASE("a plateau's rate falls in all processes after the same evaluation") {
  const auto options = with(impatient());
  const auto rates_in = [&](const Layout& layout) {
    return in_processes(layout, options, [](int, const TrainerOptions& own) {
      auto trainer = make_trainer(lenet_factory(), own);
      std::vector<double> rates;
      for (int round = 0; round < 4; ++round) {
        for (const auto& batch : kBatches) trainer.step(batch);
        for (int again = 0; again < 2; ++again) {  // the second is no better
          trainer.observe_loss(trainer.evaluate().mean_loss());
          rates.push_back(trainer.lr());
        }
      }
      return rates;
    });
  };
  for (const auto& layout : {Layout{2, 2}, Layout{3, 1}}) {
    INFO(text_of(layout));
    const auto all = rates_in(layout);
    CHECK(all[0].back() <= .2 / 16);
    for (const auto& rates : all) CHECK(rates == all[0]);
  }
}
