// Expected values are torch's, or calculated by hand: cos(pi/4) = 0.70710678118654752, cos(pi/8) =
// 0.92387953251128674.
#include <lockstep/tests/catch.h>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/optimizer/lr_schedule.h>
#include <lockstep/support/error.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The rates of each step by torch_rates.py; loss: of the evaluation after the step, at an epoch's end.
struct TorchRates {
  double constant, cosine, warm_cosine, step, one_cycle, linear_one_cycle, exponential, plateau, loss;
};

constexpr TorchRates kTorchRates[] = {
#include <lockstep/tests/parallel/optimizer/torch_rates.inc>
};
constexpr int64_t kTorchSteps = 300, kTorchEpoch = 10;

// The factors after each of these losses.
std::vector<double> factors(const LrSchedule& schedule, const std::vector<double>& losses) {
  std::vector<double> found;
  LrState state;
  for (const double loss : losses) {
    state = after_loss(schedule, state, loss);
    found.push_back(state.factor);
  }
  return found;
}

void check_rates(const LrSchedule& schedule, const std::vector<double>& expected) {
  for (size_t step = 0; step < expected.size(); ++step) {
    INFO(name_of(kScheduleNames, schedule.schedule) << ", step " << step);
    CHECK(lr_at(schedule, static_cast<int64_t>(step)) == Approx(expected[step]).epsilon(1e-14).margin(1e-15));
  }
}

}  // namespace

TEST_CASE("a constant schedule keeps the base rate exactly") {
  const LrSchedule schedule{.lr = .1, .total_steps = 5};
  for (int64_t step = 0; step < 5; ++step) CHECK(lr_at(schedule, step) == .1);
}

TEST_CASE("warm-up rises linearly to the base rate") {
  const std::vector<double> rises{.2, .4, .6, .8};
  auto expected = rises;
  expected.insert(expected.end(), 8, .8);
  check_rates({.lr = .8, .total_steps = 12, .warmup_steps = 4}, expected);
  check_rates({.lr = .8, .total_steps = 2, .warmup_steps = 1}, {.8, .8});

  // A run that is all warm-up, and one that ends before its warm-up.
  for (const auto schedule : {Schedule::kConstant, Schedule::kCosine, Schedule::kStep}) {
    check_rates({.schedule = schedule, .lr = .8, .total_steps = 4, .warmup_steps = 4}, rises);
    check_rates({.schedule = schedule, .lr = .8, .total_steps = 2, .warmup_steps = 4}, {.2, .4});
  }
}

TEST_CASE("the cosine schedule falls from the base rate towards 0") {
  constexpr double kEighth = .92387953251128674;   // cos(pi/8)
  constexpr double kQuarter = .70710678118654752;  // cos(pi/4)
  constexpr double kThreeEighths = .38268343236508977;
  const std::vector<double> falls{2, 1 + kEighth,       1 + kQuarter, 1 + kThreeEighths,
                                  1, 1 - kThreeEighths, 1 - kQuarter, 1 - kEighth};
  check_rates({.schedule = Schedule::kCosine, .lr = 2, .total_steps = 8}, falls);

  std::vector<double> with_warmup{.5, 1, 1.5, 2};  // the cosine spans the remaining 8 steps
  with_warmup.insert(with_warmup.end(), falls.begin(), falls.end());
  check_rates({.schedule = Schedule::kCosine, .lr = 2, .total_steps = 12, .warmup_steps = 4}, with_warmup);

  check_rates({.schedule = Schedule::kCosine, .lr = 2, .total_steps = 1}, {2});
  check_rates({.schedule = Schedule::kCosine, .lr = 2, .total_steps = 2}, {2, 1});
  for (const int64_t later : {2, 3, 4, 1000}) {
    CHECK(lr_at({.schedule = Schedule::kCosine, .lr = 2, .total_steps = 2}, later) == 0);
  }
}

TEST_CASE("the step schedule: a tenth from half of the run on, a hundredth from three quarters on") {
  check_rates({.schedule = Schedule::kStep, .lr = 1, .total_steps = 8}, {1, 1, 1, 1, .1, .1, .01, .01});
  // 10 steps: half is step 5, three quarters lie between 7 and 8.
  check_rates({.schedule = Schedule::kStep, .lr = 1, .total_steps = 10},
              {1, 1, 1, 1, 1, .1, .1, .1, .01, .01});
  check_rates({.schedule = Schedule::kStep, .lr = 3, .total_steps = 6, .warmup_steps = 2},
              {1.5, 3, 3, 3, .3, .03});
  check_rates({.schedule = Schedule::kStep, .lr = 1, .total_steps = 1}, {1});
}

TEST_CASE("the rates of every schedule over 300 steps are those of torch.optim.lr_scheduler") {
  REQUIRE(std::size(kTorchRates) == kTorchSteps);
  const std::pair<LrSchedule, double TorchRates::*> cases[] = {
      {{}, &TorchRates::constant},
      {{.schedule = Schedule::kCosine}, &TorchRates::cosine},
      {{.schedule = Schedule::kCosine, .warmup_steps = 40}, &TorchRates::warm_cosine},
      {{.schedule = Schedule::kStep}, &TorchRates::step},
      {{.schedule = Schedule::kOneCycle}, &TorchRates::one_cycle},
      {{.schedule = Schedule::kOneCycle,
        .one_cycle =
            {.pct_start = .25, .div_factor = 10, .final_div_factor = 100, .anneal = Anneal::kLinear}},
       &TorchRates::linear_one_cycle},
      {{.schedule = Schedule::kExponential, .exponential = {.gamma = .97, .every = kTorchEpoch}},
       &TorchRates::exponential},
      {{.schedule = Schedule::kPlateau, .plateau = {.factor = .5, .patience = 2, .threshold = .01}},
       &TorchRates::plateau}};
  for (auto [schedule, expected] : cases) {
    schedule.lr = .1;
    schedule.total_steps = kTorchSteps;
    LrState state;
    for (int64_t step = 0; step < kTorchSteps; ++step) {
      INFO(name_of(kScheduleNames, schedule.schedule) << ", step " << step);
      const auto& row = kTorchRates[step];
      CHECK(lr_at(schedule, step, state) == Approx(row.*expected).epsilon(1e-12));
      if ((step + 1) % kTorchEpoch == 0) state = after_loss(schedule, state, row.loss);
    }
  }
}

TEST_CASE("one cycle: the rate at its ends, at its top, and after it") {
  LrSchedule schedule{.schedule = Schedule::kOneCycle,
                      .lr = 1,
                      .total_steps = 11,
                      .one_cycle = {.pct_start = 6. / 11, .div_factor = 4, .final_div_factor = 2}};
  const auto check = [&](int64_t step, double expected) {
    CHECK(lr_at(schedule, step) == Approx(expected).epsilon(1e-14));
  };
  check(0, .25);
  check(5, 1);
  for (const int64_t last : {10, 11, 1000}) check(last, .125);
  schedule.one_cycle.anneal = Anneal::kLinear;
  check(1, .4);
  check(6, .825);
  schedule.one_cycle.pct_start = 1. / 11;  // torch divides by zero: the top is the first step
  check(0, 1);
  schedule.one_cycle.pct_start = 1;
  check(10, 1);
  schedule.total_steps = 1;
  schedule.one_cycle.pct_start = .3;  // the last of all steps
  check(0, .125);
}

TEST_CASE("the exponential schedule begins after the warm-up") {
  check_rates({.schedule = Schedule::kExponential,
               .lr = 1,
               .total_steps = 2,  // its rates do not depend on them
               .warmup_steps = 2,
               .exponential = {.gamma = .5, .every = 2}},
              {.5, 1, 1, 1, .5, .5, .25});
}

TEST_CASE("a plateau's rate falls after more bad losses than its patience, and starts to count again") {
  const LrSchedule schedule{.schedule = Schedule::kPlateau,
                            .plateau = {.factor = .1, .patience = 1, .threshold = .1}};
  CHECK(factors(schedule, {1, 1, 1, 1, .95, .8}) == std::vector<double>{1, 1, .1, .1, .1 * .1, .1 * .1});
  // .9 is no better than 1: it is not below 1 - .1.
  CHECK(factors(schedule, {1, .9, .89, .89, .89}) == std::vector<double>{1, 1, 1, 1, .1});
  CHECK(factors(schedule, {kNan, kInfinity, 1, -kInfinity, 1}) ==
        std::vector<double>{1, .1, .1, .1, .1 * .1});
  auto impatient = schedule;
  impatient.plateau.patience = 0;
  CHECK(factors(impatient, {1, 1, 1}) == std::vector<double>{1, .1, .1 * .1});
  impatient.lr = 1e-8;  // would lose less than 1e-8
  CHECK(factors(impatient, {1, 1, 1}) == std::vector<double>{1, 1, 1});
  auto cosine = schedule;
  cosine.schedule = Schedule::kCosine;
  CHECK(after_loss(cosine, {}, 1) == LrState());
}

TEST_CASE("a plateau's factor counts during the warm-up, too") {
  const LrSchedule schedule{.schedule = Schedule::kPlateau, .lr = 1, .total_steps = 8, .warmup_steps = 2};
  const LrState fallen{.factor = .5};
  CHECK(lr_at(schedule, 0, fallen) == .25);
  CHECK(lr_at(schedule, 1, fallen) == .5);
  CHECK(lr_at(schedule, 7, fallen) == .5);
}

TEST_CASE("a fixed rate holds before a function, and a function before the schedule") {
  LrSchedule schedule{.lr = .5};
  CHECK(lr_at(schedule, 3) == .5);
  schedule.function = [](int64_t step) { return static_cast<double>(step); };
  CHECK(lr_at(schedule, 3) == 3);
  CHECK(lr_at(schedule, 3, {.fixed = 7}) == 7);
  CHECK(lr_at(schedule, 3, {.fixed = 0}) == 0);
}

TEST_CASE("a function's rate that is none is refused, with the step and the rate") {
  for (const auto& [wrong, words] : {std::pair(-1., "is -1"), {kNan, "is nan"}, {kInfinity, "is inf"}}) {
    const LrSchedule schedule{.function = [wrong = wrong](int64_t) { return wrong; }};
    CHECK_THROWS_AS(lr_at(schedule, 3), UsageError);
    CHECK_THROWS_WITH(lr_at(schedule, 3), ContainsSubstring("lr.function(3)") && ContainsSubstring(words));
  }
}

TEST_CASE("the schedules by name") {
  CHECK(value_of(kScheduleNames, "constant") == Schedule::kConstant);
  CHECK(value_of(kScheduleNames, "cosine") == Schedule::kCosine);
  CHECK(value_of(kScheduleNames, "step") == Schedule::kStep);
  CHECK(value_of(kScheduleNames, "onecycle") == Schedule::kOneCycle);
  CHECK(value_of(kScheduleNames, "plateau") == Schedule::kPlateau);
  CHECK(value_of(kScheduleNames, "exponential") == Schedule::kExponential);
}
