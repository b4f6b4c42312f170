#include <lockstep/parallel/optimizer/lr_schedule.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <lockstep/support/error.h>

namespace lockstep {

namespace {

constexpr double kLeastFall = 1e-8;  // of a plateau's rate, as torch's eps

double part(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

// From `start` (done = 0) to `end` (done = 1).
double annealed(Anneal anneal, double start, double end, double done) {
  if (anneal == Anneal::kLinear) return (end - start) * done + start;
  return end + (start - end) / 2 * (std::cos(std::numbers::pi * done) + 1);
}

// torch's formula, with a phase of no steps left out, where torch divides by zero.
double one_cycle_at(const LrSchedule& schedule, int64_t at) {
  const auto& cycle = schedule.one_cycle;
  const double step = static_cast<double>(std::min(at, schedule.total_steps - 1));
  const double last = static_cast<double>(schedule.total_steps - 1);
  const double top = cycle.pct_start * static_cast<double>(schedule.total_steps) - 1;  // the step of the top
  const double first_rate = schedule.lr / cycle.div_factor;
  if (step <= top && top > 0) return annealed(cycle.anneal, first_rate, schedule.lr, step / top);
  const double done = last > top ? (step - top) / (last - top) : 1;
  return annealed(cycle.anneal, schedule.lr, first_rate / cycle.final_div_factor, done);
}

// The factor on the base rate, `after` steps after the warm-up.
double factor(const LrSchedule& schedule, int64_t after, const LrState& state) {
  const auto remaining = schedule.total_steps - schedule.warmup_steps;
  const double done = remaining > 0 ? std::min(part(after, remaining), 1.) : 0;
  switch (schedule.schedule) {
    case Schedule::kConstant:
    case Schedule::kOneCycle:  // one_cycle_at()
      return 1;
    case Schedule::kCosine:
      return .5 * (1 + std::cos(std::numbers::pi * done));
    case Schedule::kStep:
      return done < .5 ? 1 : done < .75 ? .1 : .01;
    case Schedule::kExponential: {
      const int64_t decays = after / schedule.exponential.every;  // whole ones
      return std::pow(schedule.exponential.gamma, static_cast<double>(decays));
    }
    case Schedule::kPlateau:
      return state.factor;
  }
  return 1;
}

double function_at(const LrSchedule& schedule, int64_t step) {
  const double rate = schedule.function(step);
  if (is_rate(rate)) return rate;
  throw UsageError(fmt::format("lr.function({}) is {}", step, rate), "a learning rate is a number from 0");
}

}  // namespace

double lr_at(const LrSchedule& schedule, int64_t step, const LrState& state) {
  if (state.fixed) return *state.fixed;
  if (schedule.function) return function_at(schedule, step);
  if (schedule.schedule == Schedule::kOneCycle) return one_cycle_at(schedule, step);
  if (step < schedule.warmup_steps) {
    const double rate = schedule.lr * part(step + 1, schedule.warmup_steps);
    return schedule.schedule == Schedule::kPlateau ? rate * state.factor : rate;
  }
  return schedule.lr * factor(schedule, step - schedule.warmup_steps, state);
}

LrState after_loss(const LrSchedule& schedule, const LrState& state, double loss) {
  if (schedule.schedule != Schedule::kPlateau) return state;
  const auto& plateau = schedule.plateau;
  auto next = state;
  if (std::isfinite(loss) && (!state.best || loss < *state.best * (1 - plateau.threshold))) {
    next.best = loss;
    next.bad_losses = 0;
    return next;
  }
  if (++next.bad_losses <= plateau.patience) return next;
  next.bad_losses = 0;
  const double lower = state.factor * plateau.factor;
  if (schedule.lr * state.factor - schedule.lr * lower > kLeastFall) next.factor = lower;
  return next;
}

bool spans_run(Schedule schedule) {
  switch (schedule) {
    case Schedule::kCosine:
    case Schedule::kStep:
    case Schedule::kOneCycle:
      return true;
    case Schedule::kConstant:
    case Schedule::kExponential:
    case Schedule::kPlateau:
      return false;
  }
  return true;
}

void require_total_steps(const LrSchedule& schedule) {
  if (schedule.function || !spans_run(schedule.schedule) || schedule.total_steps >= 1) return;
  throw UsageError(fmt::format("lr.total_steps is {}", schedule.total_steps),
                   "give the number of steps of the run, which the schedule spans");
}

bool is_rate(double lr) { return lr >= 0 && std::isfinite(lr); }

}  // namespace lockstep
