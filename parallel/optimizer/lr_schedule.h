// Learning-rate schedules. A rate is a function of the step and of an LrState, and of nothing else.
//
//   options.lr = {.schedule = Schedule::kCosine, .lr = .1, .total_steps = 3000, .warmup_steps = 100};
//   options.lr = {.schedule = Schedule::kOneCycle, .lr = .1, .total_steps = 3000};
//   options.lr = {.schedule = Schedule::kExponential, .lr = .1, .exponential = {.gamma = .95, .every = 300}};
//   options.lr = {.schedule = Schedule::kPlateau, .lr = .1, .plateau = {.factor = .5, .patience = 2}};
//   options.lr = {.function = [](int64_t step) { return .1 / std::sqrt(step + 1.); }};
//
// With kPlateau call Trainer::observe_loss(trainer.evaluate().mean_loss()) after each evaluation. A
// rate that Trainer::set_lr() has set holds before all of these.
#pragma once

#include <cstdint>
#include <functional>

#include <lockstep/support/choices.h>
#include <lockstep/support/lr_state.h>

namespace lockstep {

enum class Schedule {
  kConstant,
  kCosine,       // half a cosine from the base rate down to 0 (I. Loshchilov and F. Hutter, "SGDR", 2017,
                 // without restarts)
  kStep,         // a tenth after half of the steps, a hundredth after three quarters (K. He et al., "Deep
                 // Residual Learning", 2016)
  kOneCycle,     // up to the base rate and down again (L. N. Smith and N. Topin, "Super-Convergence", 2018);
                 // the momentum stays. Not with a warm-up
  kExponential,  // times gamma again and again
  kPlateau,      // times a factor where the loss no longer falls
};

inline constexpr Choice<Schedule> kScheduleNames[] = {
    {"constant", Schedule::kConstant}, {"cosine", Schedule::kCosine},
    {"step", Schedule::kStep},         {"onecycle", Schedule::kOneCycle},
    {"plateau", Schedule::kPlateau},   {"exponential", Schedule::kExponential}};

// How kOneCycle goes from one rate to the next.
enum class Anneal { kCosine, kLinear };

// torch.optim.lr_scheduler.OneCycleLR with cycle_momentum=False and two phases: from max_lr / div_factor up
// to max_lr, which is the base rate, and down to max_lr / div_factor / final_div_factor.
struct OneCycle {
  double pct_start = .3;  // the share of the steps that rise, 0 to 1
  double div_factor = 25;
  double final_div_factor = 1e4;
  Anneal anneal = Anneal::kCosine;
};

// torch.optim.lr_scheduler.ExponentialLR, with scheduler.step() after `every` steps: in a run, those of an
// epoch.
struct Exponential {
  double gamma = .9;  // above 0, at most 1
  int64_t every = 1;  // at least 1
};

// torch.optim.lr_scheduler.ReduceLROnPlateau with mode "min", threshold_mode "rel", and without cooldown and
// least rate. A loss is better if it is below best (1 - threshold). After more than `patience` losses in a
// row that are not better, the rate is multiplied by `factor`, unless that takes 1e-8 or less from it.
struct Plateau {
  double factor = .1;  // above 0, below 1
  int64_t patience = 10;
  double threshold = 1e-4;  // at least 0, below 1
};

struct LrSchedule {
  Schedule schedule = Schedule::kConstant;
  double lr = .1;            // the base rate, also of Adam and AdamW
  int64_t total_steps = 0;   // steps of the run: at least 1 where spans_run()
  int64_t warmup_steps = 0;  // the rate rises linearly to the base rate (P. Goyal et al., 2017)
  OneCycle one_cycle = {};
  Exponential exponential = {};
  Plateau plateau = {};
  // Not empty: the rate of each step, in place of all of the above. Depends on the step alone: a run that is
  // resumed asks it for the step that it goes on with. All processes have the same one.
  std::function<double(int64_t step)> function = {};
};

// The learning rate of step 0 .. total_steps - 1. The first of these that is there: state.fixed,
// schedule.function(step), the schedule's: during warm-up lr (step + 1) / warmup_steps, times state.factor
// with kPlateau; the schedule spans the remaining steps. Later steps have the rate at which it ends: 0 for
// kCosine. Throws UsageError if the function's is_rate() is false.
double lr_at(const LrSchedule& schedule, int64_t step, const LrState& state = {});

// Returns the state after this loss, as ReduceLROnPlateau.step(loss) counts it. A loss that is not finite is
// not better. With another schedule than kPlateau the state stays as it is.
LrState after_loss(const LrSchedule& schedule, const LrState& state, double loss);

// Returns true if the rates depend on total_steps.
bool spans_run(Schedule schedule);

// Throws UsageError if the rates depend on total_steps and there are none. Apart from what
// TrainerOptions::validate() refuses, since a run's steps are known after its data.
void require_total_steps(const LrSchedule& schedule);

// Returns true for a finite number from 0.
bool is_rate(double lr);

}  // namespace lockstep
