// lockstep bench overlap: measures what devices and copies do at the same time, as the chapter on automatic
// parallelism does, and answers its five exercises.
#pragma once

#include <lockstep/app/bench/overlap/options.h>

namespace CLI {
class App;
}

namespace lockstep {

void setup_bench_overlap(CLI::App& bench);
void run_bench_overlap(const BenchOverlapOptions& options);

}  // namespace lockstep
