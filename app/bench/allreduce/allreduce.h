// lockstep bench allreduce: times sums over replicas, of one process or several, by size and algorithm, in
// the table of nccl-tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/report/bench_options.h>

namespace lockstep {

struct BenchAllreduceOptions {
  BenchOptions bench;
  std::vector<std::string> algorithms;   // empty: all that these devices can use
  std::optional<std::string> min_bytes;  // empty: 8; with several processes 1K
  std::optional<std::string> max_bytes;  // empty: 128M; with several processes 64M
  int64_t iterations = 200;              // most repetitions per row
};

void setup_bench_allreduce(CLI::App& bench);
// Every process of the world calls it.
void run_bench_allreduce(const BenchAllreduceOptions& options, TrainWorld& world);

}  // namespace lockstep
