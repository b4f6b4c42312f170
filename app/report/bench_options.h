// The flags that all benchmarks share.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <torch/types.h>

namespace CLI {
class App;
}

namespace lockstep {

struct BenchOptions {
  std::vector<std::string> devices;  // one list a --devices; empty: the benchmark's own choice
  std::optional<int> threads;        // per replica
  int repeat = 5;
  uint64_t seed = 0;
  std::optional<std::string> json;
  bool overwrite = false;
};

// `devices_help`: what each list is for, and what the benchmark takes when there is none.
void add_bench_flags(CLI::App& bench, BenchOptions& options, const std::string& devices_help);

// The lists as devices that can be used; those of `otherwise` where none was given. Throws UsageError where
// one list was given twice.
std::vector<std::vector<torch::Device>> device_lists(const BenchOptions& options,
                                                     const std::vector<std::string>& otherwise);

// Throws UsageError where the flag was given one value twice. `hint`: why once is enough.
void need_distinct(const std::vector<std::string>& values, const std::string& flag, const std::string& hint);

// Of each replica, where so many run: --threads, or the cores shared out.
int threads_for(const BenchOptions& options, size_t replicas);

// Two devices of what there is: two GPUs, else one twice, else the processor twice.
std::string default_pair();

// The list as --devices takes it, repetitions counted: "cpux2", "cuda:0,cuda:1", "cuda:0x2,cpu".
std::string spec_of(std::span<const torch::Device> devices);

// Throws UsageError that offers lists which have as many: "[cpu] has 1 device, this needs 2".
void need_devices(const std::vector<torch::Device>& devices, size_t count, const std::string& who);

}  // namespace lockstep
