// lockstep bench scaling: measures a training on 1, 2, 4, ... replicas and predicts it on more.
#pragma once

#include <lockstep/app/bench/scaling/options.h>
#include <lockstep/app/processes/train_world.h>

namespace lockstep {

void setup_bench_scaling(CLI::App& bench);

// world: of all processes; gets the devices of all.
void run_bench_scaling(const BenchScalingOptions& options, TrainWorld& world);

}  // namespace lockstep
