// `lockstep bench overlap`: what devices and copies do at the same time, as the chapter on automatic
// parallelism measures it, and its five exercises.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/app/bench/options.h>

namespace CLI {
class App;
}

namespace lockstep {

struct BenchOverlapOptions {
  BenchOptions bench;
  std::optional<int64_t> size;        // 4000 on GPUs, 1000 with a processor among the devices
  std::optional<int64_t> iterations;  // the chapter's 50; of an exercise, see the help
  std::optional<int> exercise;
  std::optional<std::string> trace;
};

void setup_bench_overlap(CLI::App& bench);
void run_bench_overlap(const BenchOverlapOptions& options);

}  // namespace lockstep
