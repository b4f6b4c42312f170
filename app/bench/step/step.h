// lockstep bench step: the time of a training step and of its phases.
#pragma once

#include <lockstep/app/report/timed_training.h>

namespace lockstep {

struct BenchStepOptions : BenchTrainOptions {
  int64_t iterations = 0;  // steps per repetition; 0: as many as take half a second
};

void setup_bench_step(CLI::App& bench);
void run_bench_step(const BenchStepOptions& options);

}  // namespace lockstep
