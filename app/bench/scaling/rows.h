// The rows of `bench scaling`.
#pragma once

#include <vector>

#include <lockstep/app/bench/scaling/case.h>
#include <lockstep/app/report/report.h>

namespace lockstep {

std::vector<Column> scaling_columns(bool of_processes);

// measured: a case in which this process trains.
Json scaling_row(const ScalingCase& measured, const ScalingCase& reference);

}  // namespace lockstep
