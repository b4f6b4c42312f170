#include <lockstep/app/bench/scaling/case.h>

#include <fmt/format.h>

#include <algorithm>

#include <lockstep/app/bench/background_load.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kMeasurementSeconds = .3;  // of one measurement
constexpr int64_t kComparedSteps = 3;

std::vector<NamedTensor> weights_in_double(TrainPlan plan) {
  plan.trainer.replica.precision = Precision::kFp64;
  TimedTraining training(plan);
  training.seconds_per_step(kComparedSteps);
  return training.trainer().weights();
}

}  // namespace

double ScalingCase::rows() const {
  return static_cast<double>(std::min(plan.batch_size, plan.data.set.train.size()));
}

void measure_cases(std::vector<ScalingCase>& cases, int repeat, int64_t steps, const BenchReport& report) {
  std::vector<std::unique_ptr<TimedTraining>> trainings;
  std::vector<std::unique_ptr<BackgroundLoad>> background_load;
  std::vector<int64_t> steps_of;
  for (const auto& each : cases) {
    report.stop_if_interrupted("while warming up " + spec_of(each.plan.trainer.devices));
    trainings.push_back(std::make_unique<TimedTraining>(each.plan));
    background_load.push_back(std::make_unique<BackgroundLoad>(each.plan, each.background_load));
    const auto fitting = steps_per_repetition(*trainings.back(), kMeasurementSeconds);
    steps_of.push_back(steps > 0 ? steps : fitting);
  }
  report.note(fmt::format("repetitions: {}, of {} steps, list by list", repeat, fmt::join(steps_of, ", ")));
  const auto measure = [&](size_t i) {
    background_load[i]->run();
    const double seconds = trainings[i]->seconds_per_step(steps_of[i]);
    background_load[i]->pause();
    return seconds;
  };
  for (size_t i = 0; i < cases.size(); ++i) {  // warm-up: idle cores are slower at first
    measure(i);
    trainings[i]->take_times();
  }
  for (int repetition = 0; report.takes_repetition(repetition, repeat); ++repetition) {
    for (size_t i = 0; i < cases.size(); ++i) {
      cases[i].seconds.push_back(measure(i));
      cases[i].sync.push_back(trainings[i]->take_times().sync);
    }
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    auto& each = cases[i];
    each.agree = replicas_agree(*trainings[i]);
    each.shares =
        shard_sizes(static_cast<int64_t>(each.rows()), each.replicas(), trainings[i]->trainer().split());
  }
}

std::optional<double> speed_up(const ScalingCase& measured, const ScalingCase& reference) {
  const auto ratio = paired_ratio(reference.seconds, measured.seconds);
  if (!ratio) return std::nullopt;
  return *ratio * measured.rows() / reference.rows();
}

double weights_apart(const TrainPlan& plan, const TrainPlan& reference) {
  const auto one = weights_in_double(reference), many = weights_in_double(plan);
  double apart = 0, largest = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    apart = worse(apart, (one[i].tensor - many[i].tensor).abs().max().item<double>());
    largest = std::max(largest, one[i].tensor.abs().max().item<double>());
  }
  return apart / largest;
}

}  // namespace lockstep
