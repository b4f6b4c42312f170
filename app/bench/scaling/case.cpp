#include <lockstep/app/bench/scaling/case.h>

#include <fmt/format.h>

#include <algorithm>

#include <lockstep/app/bench/background_load.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kTurn = .3;  // seconds
constexpr int64_t kComparedSteps = 3;

std::vector<NamedTensor> weights_in_double(TrainPlan plan) {
  plan.trainer.replica.precision = Precision::kFp64;
  TimedTraining training(plan);
  training.seconds_per_step(kComparedSteps);
  return training.trainer().weights();
}

}  // namespace

double Contender::rows() const {
  return static_cast<double>(std::min(plan.batch_size, plan.data.set.train.size()));
}

void take_turns(std::vector<Contender>& contenders, int repeat, int64_t steps, const BenchReport& report) {
  std::vector<std::unique_ptr<TimedTraining>> trainings;
  std::vector<std::unique_ptr<Neighbours>> neighbours;
  std::vector<int64_t> steps_of;
  for (const auto& contender : contenders) {
    report.stop_if_interrupted("while warming up " + spec_of(contender.plan.trainer.devices));
    trainings.push_back(std::make_unique<TimedTraining>(contender.plan));
    neighbours.push_back(std::make_unique<Neighbours>(contender.plan, contender.neighbours));
    const auto fitting = steps_a_turn(*trainings.back(), kTurn);
    steps_of.push_back(steps > 0 ? steps : fitting);
  }
  report.note(fmt::format("turns: {}, of {} steps, list by list", repeat, fmt::join(steps_of, ", ")));
  const auto take_turn = [&](size_t i) {
    neighbours[i]->run();
    const double seconds = trainings[i]->seconds_per_step(steps_of[i]);
    neighbours[i]->rest();
    return seconds;
  };
  for (size_t i = 0; i < contenders.size(); ++i) {  // not counted: cores that have rested are slower at first
    take_turn(i);
    trainings[i]->take_times();
  }
  for (int turn = 0; report.takes_turn(turn, repeat); ++turn) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      contenders[i].seconds.push_back(take_turn(i));
      contenders[i].sync.push_back(trainings[i]->take_times().sync);
    }
  }
  for (size_t i = 0; i < contenders.size(); ++i) {
    auto& contender = contenders[i];
    contender.agree = replicas_agree(*trainings[i]);
    contender.shares = shard_sizes(static_cast<int64_t>(contender.rows()), contender.replicas(),
                                   trainings[i]->trainer().split());
  }
}

std::optional<double> speed_up(const Contender& contender, const Contender& reference) {
  const auto ratio = paired_ratio(reference.seconds, contender.seconds);
  if (!ratio) return std::nullopt;
  return *ratio * contender.rows() / reference.rows();
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
