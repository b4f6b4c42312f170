// lockstep bench partition: compares the chapter's three schemes that partition a network over devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/app/report/bench_options.h>

namespace lockstep {

struct BenchPartitionOptions {
  BenchOptions bench;
  std::vector<std::string> models;  // empty: all of layered_network_names()
  int64_t batch_size = 256;
  int micro_batches = 4;
};

void setup_bench_partition(CLI::App& bench);
void run_bench_partition(const BenchPartitionOptions& options);

}  // namespace lockstep
