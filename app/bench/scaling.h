// lockstep bench scaling: the same training on 1, 2, 4, ... replicas, and what to expect of more.
#pragma once

#include <optional>
#include <string>

#include <lockstep/app/bench/training.h>

namespace lockstep {

struct BenchScalingOptions : BenchTrainOptions {
  std::string scaling = "both";
  int64_t iterations = 0;         // steps a turn; 0: as many as take a third of a second
  std::optional<int64_t> epochs;  // also train so long, for the accuracy
  std::optional<int> predict;     // replicas
  std::optional<std::string> link;
};

void setup_bench_scaling(CLI::App& bench);
void run_bench_scaling(const BenchScalingOptions& options);

}  // namespace lockstep
