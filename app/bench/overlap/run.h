// The state of one call of `bench overlap`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/bench/overlap/plan.h>
#include <lockstep/app/report/report.h>
#include <lockstep/parallel/timing/trace.h>

namespace lockstep {

struct OverlapRun {
  BenchReport& report;
  const OverlapPlan& plan;
  Trace* trace;  // for --trace; null without it
  Json timeline = Json::array();

  // Adds the events to the timeline and keeps the timeline in the report.
  void keep_timeline(const std::string& experiment, const Trace& traced);
};

// The names of ranks in traces and timelines: the devices' names, then "host".
std::vector<std::string> process_names(const OverlapPlan& plan);

// Adds the median, the quartiles, the IQR (%) and the number of repetitions to a row: "seconds",
// "low_seconds", "high_seconds", "iqr" and "repeats".
void add_times(Json& row, const std::vector<double>& seconds);

// Floating-point operations of `matmuls` matrix products of (size, size).
double matmul_flops(int64_t size, int64_t matmuls);

// Says that `repeats` repetitions are too few for a ratio.
std::string too_few_repeats(size_t repeats);

}  // namespace lockstep
