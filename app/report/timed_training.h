// Timed training, for `bench step`, `bench scaling` and `sweep`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include <lockstep/app/report/bench_options.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/parallel/trainer.h>

namespace lockstep {

struct BenchTrainOptions {
  BenchOptions bench;
  TrainFlags train;  // plan_on() replaces its devices, threads and seed
};

// Returns the plan that `train` would have with these options on these devices. `data`: already loaded, or
// empty to load it. `world`: of several processes, with the devices of all. Throws what `train` throws.
TrainPlan plan_on(const BenchTrainOptions& options, const std::vector<torch::Device>& devices, int threads,
                  const std::optional<LoadedData>& data = {}, const TrainWorld& world = {});

// A trainer that takes timed steps, epoch after epoch, without end.
class TimedTraining {
 public:
  // Keeps references to `plan` and `trace`. `trace` may be null: then only whole steps are timed.
  explicit TimedTraining(const TrainPlan& plan, Trace* trace = nullptr);

  // Takes this many steps on full batches, waits for them, and returns their seconds.
  double take_steps(int64_t steps);

  // The same, and returns the seconds per step. In fp16 a step that is skipped takes time, but does not
  // count. Throws NumericError if all are skipped.
  double seconds_per_step(int64_t steps);

  // Returns the phases of a step as the host sees them: means over the steps since the last call.
  StepTimes take_times();

  // The steps that have changed the weights: in fp16 not those that were skipped. Waits for the last one.
  int64_t updates();

  Trainer& trainer() { return trainer_; }

 private:
  std::span<const int64_t> next_batch();

  const TrainPlan& plan_;
  Trainer trainer_;
  std::vector<int64_t> order_;  // of the current epoch
  int64_t epoch_ = 0;
  size_t place_ = 0;
  int64_t steps_ = 0;  // updates since the last take_times()
};

// The first steps allocate buffers, choose kernels and capture CUDA graphs. They are not timed.
inline constexpr int64_t kWarmUpSteps = 3;

// Warms up, lets --split auto and the loss scale of fp16 settle, and returns the seconds of a step.
double warm_step_seconds(TimedTraining& training);

// The number of steps of `step` seconds that take about `seconds`, at least 1.
int64_t steps_within(double seconds, double step);

// As warm_step_seconds(), and returns the number of steps that take about `seconds`, at least 1.
int64_t steps_per_repetition(TimedTraining& training, double seconds);

// Returns true if the parameters of all replicas have the same bits. Replicas on different kinds of devices
// of this process may differ by 1e-5 of a parameter's largest value. All processes call it.
bool replicas_agree(TimedTraining& training);

}  // namespace lockstep
