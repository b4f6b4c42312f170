// One training configuration of `bench scaling`, and its measurements.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <lockstep/app/bench/scaling/largest_of_all.h>
#include <lockstep/app/report/bench_replicas.h>
#include <lockstep/app/report/report.h>
#include <lockstep/app/report/timed_training.h>

namespace lockstep {

struct BenchScalingOptions : BenchTrainOptions {
  std::string scaling = "both";
  int64_t iterations = 0;         // steps per repetition; 0: as many as take a third of a second
  std::optional<int64_t> epochs;  // also train this long, for the accuracy
  std::optional<int> predict;     // up to this many replicas
  std::optional<std::string> link;
};

enum class Scaling {
  kStrong,  // the same global batch on n replicas: B
  kWeak,    // the same batch on each: n B, at n times the learning rate
};

inline constexpr Choice<Scaling> kScalingNames[] = {{"strong", Scaling::kStrong}, {"weak", Scaling::kWeak}};

struct ScalingCase {
  Scaling scaling = Scaling::kStrong;
  std::string devices = {};  // as in the table, the same in all processes
  // True if this process trains. Some of several processes train together, while others wait. Where this one
  // waits there is no plan, and of the measurements only `seconds` and `agree`.
  bool trains = true;
  TrainPlan plan = {};
  int background_load = 0;  // one-replica trainings of the same plan that keep other cores busy meanwhile
  Seconds seconds = {};     // per step; of the slowest process
  // Exposed sync per step, as the host sees it. On GPUs it is the time of queueing, unless
  // ReplicaOptions::wait_for_device.
  Seconds sync = {};
  bool agree = false;                // all replicas had the same weights at the end
  std::vector<int64_t> shares = {};  // rows per step of each replica at the end
  std::optional<double> accuracy = {};

  int replicas() const { return plan.world_size(); }
  double rows() const;  // per step
};

// Returns the plan of these replicas on a batch of B images (strong) or n B (weak), divided by `divisor`.
// data: read by the first call that needs it. Throws as `train` does.
TrainPlan scaling_plan(const BenchScalingOptions& options, Scaling scaling, const BenchReplicas& replicas,
                       int threads, std::optional<LoadedData>& data, int64_t divisor = 1);

// The modes of --scaling.
std::vector<Scaling> scaling_modes(const BenchScalingOptions& options);

// The sizes of worlds that are measured and predicted: 1, 2, 4, ... and `most` itself.
std::set<int> worlds_up_to(int most);

// Measures the cases in turns. All are in memory at once. Every process calls it with the same cases; those
// that train begin together.
void measure_cases(std::vector<ScalingCase>& cases, const BenchScalingOptions& options,
                   const BenchReport& report, LargestOfAll& largest);

// Ratio of images per second to the reference's, paired by repetition. Empty with fewer than three
// repetitions.
std::optional<double> speed_up(const ScalingCase& measured, const ScalingCase& reference);

// Takes three steps in double with both plans and returns the largest difference of their weights, relative
// to the largest weight. Both cases must be strong: they train on the same batches, so the difference is
// rounding alone unless the network couples the rows (batch norm). Every process calls it, and gets the same
// value.
double weights_apart(const ScalingCase& measured, const ScalingCase& reference, LargestOfAll& largest);

}  // namespace lockstep
