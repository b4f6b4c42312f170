// The rows of `bench scaling`, the checks of its measurements, and the conclusions from them.
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/bench/scaling/case.h>

namespace lockstep {

std::vector<Column> scaling_columns(bool of_processes, const std::string& row_noun);

// measured: a case in which this process trains.
Json scaling_row(const ScalingCase& measured, const ScalingCase& reference);

// Checks that all replicas agree, and that their update is that of one device with the same batch, unless
// each replica has batch-norm statistics of its own. all: the plan in which every process trains. Every
// process calls it.
void check_case(BenchReport& report, const ScalingCase& measured, const ScalingCase& reference,
                const TrainPlan& all, LargestOfAll& largest);

// With --split auto, in one process: compares several devices with the fastest of them alone.
void answer_mixing(BenchReport& report, const std::vector<ScalingCase>& cases);

}  // namespace lockstep
