// `bench scaling --predict`: the time of a step on more devices than this machine has.
#pragma once

#include <optional>
#include <vector>

#include <lockstep/app/bench/scaling/case.h>
#include <lockstep/app/bench/scaling/model.h>
#include <lockstep/app/report/report.h>

namespace lockstep {

// Predicts steps on 1, 2, 4, ... and `most` devices. Prints the model, and a table of predictions with the
// measurements that exist and their difference; with --shard also a table of both schemes. fractions: one
// replica with B, B/2 and B/4 rows, measured in the same repetitions. measured: all other cases, the
// reference first. cores: of this machine; the model does not hold for CPU replicas that share cores.
void report_prediction(BenchReport& report, const std::vector<ScalingCase>& fractions,
                       const std::vector<ScalingCase>& measured, const Link& link, int most, int cores);

// The same for 1, 2, 4, ... and `most` processes, each with the replicas of process 0. Every process calls
// it. fractions: processes alone, all at the same time. measured: all other cases; the last one is of all
// processes. link: between the processes; empty: measured.
void report_process_prediction(BenchReport& report, const std::vector<ScalingCase>& fractions,
                               const std::vector<ScalingCase>& measured, const std::optional<Link>& link,
                               int most);

}  // namespace lockstep
