// lockstep bench allreduce: times sums over replicas by size and algorithm, in the table of nccl-tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/app/report/bench_options.h>

namespace lockstep {

struct BenchAllreduceOptions {
  BenchOptions bench;
  std::vector<std::string> algorithms;  // empty: all that these devices can use
  std::string min_bytes = "8";
  std::string max_bytes = "128M";
  int64_t iterations = 200;  // most repetitions per row
};

void setup_bench_allreduce(CLI::App& bench);
void run_bench_allreduce(const BenchAllreduceOptions& options);

}  // namespace lockstep
