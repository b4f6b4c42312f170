// Training that is measured: what `bench step`, `bench scaling` and `sweep` share.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include <lockstep/app/report/bench_options.h>
#include <lockstep/app/train/flags.h>
#include <lockstep/app/train/plan.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/parallel/trainer.h>

namespace lockstep {

struct BenchTrainOptions {
  BenchOptions bench;
  TrainFlags train;  // its devices, threads and seed are those of `bench`, or of each measurement
};

// What `train` would do with these options on these devices. data: read already, or none yet. Throws as
// `train` does.
TrainPlan plan_on(const BenchTrainOptions& options, const std::vector<torch::Device>& devices, int threads,
                  const std::optional<LoadedData>& data = {});

// A trainer that goes through its epochs' batches for as long as somebody measures.
class TimedTraining {
 public:
  // plan: kept by reference. trace: outlives this; null where only the time of whole steps counts.
  explicit TimedTraining(const TrainPlan& plan, Trace* trace = nullptr);

  // Takes so many steps on full batches and waits for them: seconds a step.
  double seconds_per_step(int64_t steps);

  // The parts of a step that the host saw, means over the steps since the last call.
  StepTimes take_times();

  Trainer& trainer() { return trainer_; }

 private:
  std::span<const int64_t> next_batch();

  const TrainPlan& plan_;
  Trainer trainer_;
  std::vector<int64_t> order_;  // of the epoch under way
  int64_t epoch_ = 0;
  size_t place_ = 0;
  int64_t steps_ = 0;  // since the last take_times()
};

// Before anything is timed: buffers are made, kernels chosen, GPUs' steps recorded.
inline constexpr int64_t kWarmUpSteps = 3;

// Steps that fill a turn of at least so many seconds, at least 1: after the warm-up.
int64_t steps_a_turn(TimedTraining& training, double seconds);

// Whether the parameters of all replicas have the same bits. (Lists that mix kinds of devices are equal to
// rounding only: those are compared to 1e-5 of the largest.)
bool replicas_agree(TimedTraining& training);

}  // namespace lockstep
