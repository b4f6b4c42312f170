// The table of layers of `bench step`.
#pragma once

#include <vector>

#include <lockstep/app/report/report.h>
#include <lockstep/app/train/plan/plan.h>

namespace lockstep {

std::vector<Column> layer_columns();

// Times the layers of a plan on CPUs one by one, prints a row for each, and compares their sum with the
// seconds of a step, and their arithmetic with the peak of the cores.
void report_layers(BenchReport& report, const TrainPlan& plan, double step_seconds);

}  // namespace lockstep
