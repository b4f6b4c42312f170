// The table of `bench scaling --predict`.
#pragma once

#include <functional>
#include <vector>

#include <lockstep/app/bench/scaling/case.h>
#include <lockstep/app/bench/scaling/model.h>
#include <lockstep/app/report/report.h>

namespace lockstep {

// The predicted steps: on n units, each a replica, or a process with the same number of replicas.
struct PredictedSteps {
  const std::vector<ScalingCase>& cases;  // measured; the first one is the reference, one replica
  int most = 1;                           // units: 1, 2, 4, ... and `most` itself
  bool of_processes = false;
  int replicas_each = 1;  // in each unit
  std::function<Prediction(Scaling mode, int n)> predict;
  std::function<bool(const ScalingCase& measured, int n)> covers;  // whether the model holds for it
};

// Prints a row for each mode that was measured and each number of units, with the measurements that exist and
// their difference.
void report_predicted_steps(BenchReport& report, const PredictedSteps& steps);

// The compute model that explains the measured steps of one unit with B, B/2 and B/4 rows.
ComputeModel fit_fractions(const std::vector<ScalingCase>& fractions);

int64_t bytes_of_gradients(const TrainPlan& plan);

}  // namespace lockstep
