#include <lockstep/app/report/timed_training.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <lockstep/app/train/plan/combinations.h>
#include <lockstep/app/train/plan/recipe.h>
#include <lockstep/data/batch_order.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/training/sync_check.h>
#include <lockstep/support/error.h>
#include <lockstep/support/stopwatch.h>
#include <torch/nn/module.h>

namespace lockstep {
namespace {

TrainerOptions trainer_options(const TrainPlan& plan, Trace* trace) {
  auto options = plan.trainer;
  if (trace) {
    options.replica.trace = trace;
    options.replica.cuda_graph = CudaGraph::kOff;  // the trace shows the phases
  }
  return options;
}

// Compares replicas of different processes, too.
bool processes_agree(Trainer& trainer) {
  if (trainer.world_size() == trainer.local_size()) return true;
  try {
    trainer.check_sync();
  } catch (const OutOfSyncError&) {
    return false;
  }
  return true;
}

// Compares bytes, since NaN is not equal to itself. Both tensors are contiguous and on the host.
bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

}  // namespace

TrainPlan plan_on(const BenchTrainOptions& options, const std::vector<torch::Device>& devices, int threads,
                  const std::optional<LoadedData>& data, const TrainWorld& world) {
  auto train = options.train;
  train.devices = spec_of(devices);
  train.trainer.threads = threads;
  train.trainer.seed = options.bench.seed;
  check_combinations(train, recipe_of(train));
  return make_train_plan(train, data, world);
}

TimedTraining::TimedTraining(const TrainPlan& plan, Trace* trace)
    : plan_(plan),
      trainer_(plan.factory, plan.data.set.train.sources, plan.data.set.test.sources,
               trainer_options(plan, trace)),
      order_(batch_order(plan.trainer.seed, 0, plan.data.set.train.rows)) {}

std::span<const int64_t> TimedTraining::next_batch() {
  const auto size = std::min(static_cast<size_t>(plan_.batch_size), order_.size());
  if (place_ + size > order_.size()) {  // the smaller last batch of an epoch is left out
    order_ = batch_order(plan_.trainer.seed, ++epoch_, plan_.data.set.train.rows);
    place_ = 0;
  }
  // As train_epochs() does: a batch ahead.
  const std::span<const int64_t> all(order_);
  if (place_ == 0) trainer_.will_need(all.first(size), epoch_);
  place_ += size;
  if (place_ + size <= all.size()) trainer_.will_need(all.subspan(place_, size), epoch_);
  return all.subspan(place_ - size, size);
}

int64_t TimedTraining::updates() {
  const auto scale = trainer_.loss_scale();
  return scale ? scale->updates : trainer_.steps_taken();
}

double TimedTraining::take_steps(int64_t steps) {
  const auto before = updates();
  Stopwatch watch;
  for (int64_t step = 0; step < steps; ++step) {
    const auto rows = next_batch();
    trainer_.step(rows, epoch_);
  }
  trainer_.synchronize();
  const double seconds = watch.lap();
  steps_ += updates() - before;
  return seconds;
}

double TimedTraining::seconds_per_step(int64_t steps) {
  const auto before = updates();
  const double seconds = take_steps(steps);
  const auto counted = updates() - before;
  if (counted > 0) return seconds / static_cast<double>(counted);
  throw NumericError("no step was timed: all were skipped, since a gradient was not finite in fp16",
                     "use --precision bf16, which has the range of fp32, or time more steps");
}

StepTimes TimedTraining::take_times() {
  return trainer_.take_times() / static_cast<double>(std::max<int64_t>(std::exchange(steps_, 0), 1));
}

double warm_step_seconds(TimedTraining& training) {
  training.take_steps(kWarmUpSteps);
  while (!training.trainer().split_settled() || training.updates() == 0) training.take_steps(1);
  const double step = training.take_steps(1);
  training.take_times();
  return step;
}

int64_t steps_within(double seconds, double step) {
  return std::max<int64_t>(1, static_cast<int64_t>(std::lround(seconds / step)));
}

int64_t steps_per_repetition(TimedTraining& training, double seconds) {
  return steps_within(seconds, warm_step_seconds(training));
}

bool replicas_agree(TimedTraining& training) {
  constexpr double kMixed = 1e-5;
  auto& trainer = training.trainer();
  const auto params_of = [&](int local) { return trainer.model(local).module->parameters(); };
  if (!processes_agree(trainer)) return false;
  trainer.synchronize();
  const auto first = params_of(0);
  for (int local = 1; local < trainer.local_size(); ++local) {
    const auto other = params_of(local);
    for (size_t i = 0; i < first.size(); ++i) {
      const auto a = first[i].detach().cpu().contiguous(), b = other[i].detach().cpu().contiguous();
      const bool alike = first[i].device().type() == other[i].device().type()
                             ? same_bits(a, b)
                             : (a - b).abs().max().item<double>() <= kMixed * a.abs().max().item<double>();
      if (!alike) return false;
    }
  }
  return true;
}

}  // namespace lockstep
