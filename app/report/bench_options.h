// The flags that all benchmarks have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

namespace CLI {
class App;
}

namespace lockstep {

struct BenchOptions {
  std::vector<std::string> devices;  // one list per --devices; empty: the benchmark's default
  std::optional<int> threads;        // per replica
  int repeat = 5;
  uint64_t seed = 0;
  std::optional<std::string> json;
  bool overwrite = false;
};

// `devices_help`: what a list is for, and the default.
void add_bench_flags(CLI::App& bench, BenchOptions& options, const std::string& devices_help);

// Puts these flags except --seed below headings of the help, in a benchmark whose other flags have headings,
// too.
void group_bench_flags(CLI::App& bench);

// Returns the lists of --devices, or those of `otherwise` if there is none, as usable devices. Throws
// UsageError if a list is given twice.
std::vector<std::vector<torch::Device>> device_lists(const BenchOptions& options,
                                                     const std::vector<std::string>& otherwise);

// Throws UsageError if two values are equal. `hint`: why once is enough.
void need_distinct(const std::vector<std::string>& values, const std::string& flag, const std::string& hint);

// Threads per replica: --threads, else the cores divided by the number of replicas.
int threads_for(const BenchOptions& options, size_t replicas);

// Default pair of devices: two GPUs, one GPU twice, or the CPU twice.
std::string default_pair();

// Throws UsageError if there are fewer than `count` devices. `who`: who needs them, for the message.
void need_devices(const std::vector<torch::Device>& devices, size_t count, const std::string& who);

}  // namespace lockstep
