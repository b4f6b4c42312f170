// What one call of `bench overlap` has in hand: the plan, the report, the devices.
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
  Trace* trace;  // what goes to --trace; null: nothing does
  Json timeline = Json::array();

  // Adds one traced turn, and keeps what there is in the report.
  void keep_timeline(const std::string& experiment, const Trace& turn);
};

// The process's names in traces and timelines: the devices', then the host's own, which has the rank behind
// the last device's.
std::vector<std::string> process_names(const OverlapPlan& plan);

// Median and spread of a time's turns into a row: "seconds", "low_seconds", "high_seconds", "spread" (%) and
// "turns".
void add_times(Json& row, const std::vector<double>& seconds);

// Floating-point operations of so many products of (size, size) matrices.
double product_flops(int64_t size, int64_t products);

// Why there is no ratio.
std::string too_few_turns(int repeat);

}  // namespace lockstep
