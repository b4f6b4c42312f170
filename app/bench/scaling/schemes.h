// `bench scaling --predict` of a training with --shard: what it sends, keeps and takes beside the same
// training without.
#pragma once

#include <functional>
#include <set>

#include <lockstep/app/bench/scaling/case.h>
#include <lockstep/app/bench/scaling/model.h>
#include <lockstep/app/report/report.h>

namespace lockstep {

// The steps on n units, each a replica, or a process with the same number of replicas.
struct ShardSchemes {
  const TrainPlan& plan;  // of the training with --shard
  double gradient_bytes = 0;
  std::set<Scaling> modes = {};
  std::set<int> units = {};
  bool of_processes = false;
  int replicas_each = 1;  // in each unit
  std::function<Prediction(Scaling mode, int n, Shard shard)> predict;
};

// Prints two rows for each mode and each number of units above 1, and how the two compare on most of them.
void report_schemes(BenchReport& report, const ShardSchemes& schemes);

}  // namespace lockstep
