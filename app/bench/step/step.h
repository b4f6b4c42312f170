// lockstep bench step: what a training step takes, and where the time goes.
#pragma once

#include <lockstep/app/report/timed_training.h>

namespace lockstep {

struct BenchStepOptions : BenchTrainOptions {
  int64_t iterations = 0;  // steps a turn; 0: as many as take half a second
};

void setup_bench_step(CLI::App& bench);
void run_bench_step(const BenchStepOptions& options);

}  // namespace lockstep
