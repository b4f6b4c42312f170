#include <lockstep/app/bench/scaling/case.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include <lockstep/app/bench/scaling/background_load.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/app/train/plan/recipe.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kCaseSeconds = .3;  // of one measurement
constexpr int64_t kComparedSteps = 3;

// A case while it is measured; empty where this process waits.
struct RunningCase {
  std::unique_ptr<TimedTraining> training = {};
  std::unique_ptr<BackgroundLoad> background_load = {};
  int64_t steps = 1;  // per repetition
};

// Waits until the slowest process is done.
double seconds_of(RunningCase& running, LargestOfAll& largest) {
  largest.barrier();  // all begin together
  if (!running.training) return largest.of(0);
  running.background_load->run();
  const double seconds = running.training->seconds_per_step(running.steps);
  running.background_load->pause();
  return largest.of(seconds);
}

RunningCase begin_case(const ScalingCase& each, int64_t steps, LargestOfAll& largest) {
  RunningCase running;
  double step = 0;
  if (each.trains) {
    running.training = std::make_unique<TimedTraining>(each.plan);
    running.background_load = std::make_unique<BackgroundLoad>(each.plan, each.background_load);
    step = warm_step_seconds(*running.training);
  }
  step = largest.of(step);
  running.steps = steps > 0 ? steps : steps_within(kCaseSeconds, step);
  return running;
}

// The exposed sync of the steps since the last call.
double take_sync(RunningCase& running) { return running.training->take_times().sync; }

void finish_case(ScalingCase& each, RunningCase& running, LargestOfAll& largest) {
  const bool differ = running.training && !replicas_agree(*running.training);
  each.agree = !largest.any(differ);
  if (!running.training) return;
  each.shares =
      shard_sizes(static_cast<int64_t>(each.rows()), each.replicas(), running.training->trainer().split());
}

// Every process of the plan's world calls it.
std::vector<NamedTensor> weights_in_double(TrainPlan plan) {
  plan.trainer.replica.precision = Precision::kFp64;
  TimedTraining training(plan);
  training.seconds_per_step(kComparedSteps);
  auto weights = training.trainer().weights();
  leave_together(plan.world);  // before the first process closes its connections
  return weights;
}

// The largest difference, relative to the largest weight of `one`.
double distance(const std::vector<NamedTensor>& one, const std::vector<NamedTensor>& many) {
  double apart = 0, largest = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    apart = worse(apart, (one[i].tensor - many[i].tensor).abs().max().item<double>());
    largest = std::max(largest, one[i].tensor.abs().max().item<double>());
  }
  return apart / largest;
}

}  // namespace

TrainPlan scaling_plan(const BenchScalingOptions& options, Scaling scaling, const BenchReplicas& replicas,
                       int threads, std::optional<LoadedData>& data, int64_t divisor) {
  const auto& recipe = recipe_of(options.train);
  const int64_t times = scaling == Scaling::kWeak ? replicas.count() : 1;
  BenchTrainOptions planned = options;
  const auto batch = options.train.batch_size.value_or(recipe.batch_size);
  planned.train.batch_size = std::max<int64_t>(1, batch / divisor) * times;
  planned.train.lr =
      options.train.lr.value_or(rate_of(recipe, options.train.trainer.replica.optimizer.kind)) *
      static_cast<double>(times);
  planned.train.epochs = options.epochs.value_or(1);
  if (replicas.count() == 1) planned.train.split = "even";
  auto plan = plan_on(planned, replicas.devices, threads, data, replicas.world);
  data = plan.as_read;
  return plan;
}

std::vector<Scaling> scaling_modes(const BenchScalingOptions& options) {
  if (options.scaling == "both") return {Scaling::kStrong, Scaling::kWeak};
  return {value_of(kScalingNames, options.scaling)};
}

double ScalingCase::rows() const {
  return static_cast<double>(std::min(plan.batch_size, plan.data.set.train.rows));
}

std::set<int> worlds_up_to(int most) {
  std::set<int> worlds{most};
  for (int n = 1; n < most; n *= 2) worlds.insert(n);
  return worlds;
}

void measure_cases(std::vector<ScalingCase>& cases, const BenchScalingOptions& options,
                   const BenchReport& report, LargestOfAll& largest) {
  std::vector<RunningCase> running;
  std::vector<int64_t> steps_of;
  for (const auto& each : cases) {
    report.stop_if_interrupted("while warming up " + each.devices);
    running.push_back(begin_case(each, options.iterations, largest));
    steps_of.push_back(running.back().steps);
  }
  report.note(fmt::format("repetitions: {}, of {} steps, list by list", options.bench.repeat,
                          fmt::join(steps_of, ", ")));
  std::vector<std::function<double()>> turns;
  for (size_t i = 0; i < cases.size(); ++i) {
    turns.emplace_back([&, i] {
      const double seconds = seconds_of(running[i], largest);
      if (running[i].training) cases[i].sync.push_back(take_sync(running[i]));
      return seconds;
    });
  }
  for (const auto& turn : turns) turn();  // warm-up: idle cores are slower at first
  for (auto& each : cases) each.sync.clear();
  const auto seconds = report.in_turns(turns);
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].seconds = seconds[i];
    finish_case(cases[i], running[i], largest);
  }
}

std::optional<double> speed_up(const ScalingCase& measured, const ScalingCase& reference) {
  const auto ratio = paired_ratio(reference.seconds, measured.seconds);
  if (!ratio) return std::nullopt;
  return *ratio * measured.rows() / reference.rows();
}

double weights_apart(const ScalingCase& measured, const ScalingCase& reference, LargestOfAll& largest) {
  std::vector<NamedTensor> many;
  if (measured.trains) many = weights_in_double(measured.plan);
  return largest.of(reference.trains ? distance(weights_in_double(reference.plan), many) : 0);
}

}  // namespace lockstep
