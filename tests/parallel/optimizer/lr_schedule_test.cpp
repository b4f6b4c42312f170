// Expected values are calculated by hand: cos(pi/4) = 0.70710678118654752, cos(pi/8) = 0.92387953251128674.
#include <lockstep/tests/catch.h>
#include <vector>

#include <lockstep/parallel/optimizer/lr_schedule.h>

using namespace lockstep;

namespace {

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

TEST_CASE("the schedules by name") {
  CHECK(value_of(kScheduleNames, "constant") == Schedule::kConstant);
  CHECK(value_of(kScheduleNames, "cosine") == Schedule::kCosine);
  CHECK(value_of(kScheduleNames, "step") == Schedule::kStep);
}
