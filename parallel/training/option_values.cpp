#include <lockstep/parallel/training/option_values.h>

#include <fmt/format.h>

#include <cmath>

#include <lockstep/parallel/threads/openmp_threads.h>

namespace lockstep {
namespace {

constexpr double kLargestLossScale = 0x1p64;

void check_ranges(const TrainerOptions& options) {
  const auto refuse = [](bool wrong, const char* key, auto value, const char* hint) {
    refuse_if(wrong, named(key) + fmt::format(" is {}", value), hint);
  };
  const auto at_least_1 = [&](const char* key, int64_t value) {
    refuse(value < 1, key, value, "it must be at least 1");
  };
  const auto not_negative = [&](const char* key, double value) {
    refuse(!(value >= 0) || std::isinf(value), key, value, "it must be a number from 0");
  };
  if (options.threads) check_replica_threads(*options.threads);
  at_least_1("accumulate", options.accumulate);
  at_least_1("bucket_bytes", options.replica.sync.bucket_bytes);
  const int in_flight = steps_in_flight(options);
  refuse(in_flight < 1 || in_flight > 2, "in_flight", in_flight, "it must be 1 or 2");
  refuse(options.check_sync < 0, "check_sync", options.check_sync,
         "it must be a number of steps, or 0 for never");
  refuse(!is_rate(options.lr.lr), "lr", options.lr.lr, "it must be a number from 0");
  not_negative("momentum", options.replica.optimizer.momentum);
  not_negative("weight_decay", options.replica.optimizer.weight_decay);
  const double clip_norm = options.replica.clip_norm;
  refuse(!(clip_norm >= 0), "clip_norm", clip_norm, "it must be a positive number, or 0 for no bound");
  const auto& scale = options.replica.loss_scale;
  refuse(!(scale.initial >= 1 && scale.initial <= kLargestLossScale), "loss_scale", scale.initial,
         "it must be 1 to 2^64");
  at_least_1("growth_interval", scale.growth_interval);
  refuse(!(options.ema >= 0 && options.ema < 1), "ema", options.ema,
         "it must be below 1, or 0 for no average of the weights");
}

// Values of the schedule that is chosen. Those of others have no effect.
void check_schedule_values(const LrSchedule& lr) {
  const auto refuse = [](bool fits, const char* key, auto value, const char* hint) {
    refuse_if(!fits, named(key) + fmt::format(" is {}", value), hint);
  };
  const auto is_positive = [](double value) { return value > 0 && std::isfinite(value); };
  refuse(lr.warmup_steps >= 0, "warmup_steps", lr.warmup_steps, "it must be at least 0");
  if (lr.schedule == Schedule::kOneCycle) {
    const auto& cycle = lr.one_cycle;
    refuse(cycle.pct_start >= 0 && cycle.pct_start <= 1, "pct_start", cycle.pct_start, "it must be 0 to 1");
    refuse(is_positive(cycle.div_factor), "div_factor", cycle.div_factor, "it must be above 0");
    refuse(is_positive(cycle.final_div_factor), "final_div_factor", cycle.final_div_factor,
           "it must be above 0");
  }
  if (lr.schedule == Schedule::kExponential) {
    refuse(lr.exponential.gamma > 0 && lr.exponential.gamma <= 1, "gamma", lr.exponential.gamma,
           "it must be above 0 and at most 1");
    refuse(lr.exponential.every >= 1, "every", lr.exponential.every, "it must be at least 1");
  }
  if (lr.schedule == Schedule::kPlateau) {
    const auto& [factor, patience, threshold] = lr.plateau;
    refuse(factor > 0 && factor < 1, "factor", factor, "it must be above 0 and below 1");
    refuse(patience >= 0, "patience", patience, "it must be at least 0");
    refuse(threshold >= 0 && threshold < 1, "threshold", threshold, "it must be at least 0 and below 1");
  }
}

// As torch's optimizers refuse them.
void check_adam(const OptimizerOptions& optimizer) {
  if (optimizer.factory || optimizer.kind == OptimizerKind::kSgd) return;
  const auto refuse = [](bool fits, const char* key, double value, const char* hint) {
    refuse_if(!fits, fmt::format("{} is {}", key, value), hint);
  };
  const auto is_share = [](double beta) { return beta >= 0 && beta < 1; };
  refuse(is_share(optimizer.beta1), "beta1", optimizer.beta1, "it must be at least 0 and below 1");
  refuse(is_share(optimizer.beta2), "beta2", optimizer.beta2, "it must be at least 0 and below 1");
  refuse(is_rate(optimizer.epsilon), "epsilon", optimizer.epsilon, "it must be a number from 0");
}

}  // namespace

void refuse_if(bool wrong, const ErrorText& what, const ErrorText& hint) {
  if (wrong) throw UsageError(what, hint);
}

ErrorText named(const char* key) { return NamedOption{.key = key}; }

void check_values(const TrainerOptions& options) {
  check_ranges(options);
  check_schedule_values(options.lr);
  check_adam(options.replica.optimizer);
}

}  // namespace lockstep
