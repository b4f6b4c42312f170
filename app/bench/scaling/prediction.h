// The part of `bench scaling` that looks beyond the devices at hand.
#pragma once

#include <vector>

#include <lockstep/app/bench/scaling/case.h>
#include <lockstep/app/bench/scaling/model.h>
#include <lockstep/app/report/report.h>

namespace lockstep {

// What sums of the plan's gradients take between two of its kind of devices (on one or two GPUs, or on
// processors), by its algorithm, as measured here.
Link measure_link(const TrainPlan& plan);

// Predicts steps on 1, 2, 4, ... and `most` devices, prints the model and a table with what was measured
// where it was, and by how much they differ. `shards`: one replica at B, B/2 and B/4 rows, timed in the
// same turns. `measured`: all other contenders, the reference first. cores: of this machine; replicas on
// processors beyond them share some, which the model does not know.
void report_prediction(BenchReport& report, const std::vector<Contender>& shards,
                       const std::vector<Contender>& measured, const Link& link, int most, int cores);

}  // namespace lockstep
