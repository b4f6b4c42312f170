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

// The lists as devices that can be used; those of `otherwise` where none was given.
std::vector<std::vector<torch::Device>> device_lists(const BenchOptions& options,
                                                     const std::vector<std::string>& otherwise);

// Of each replica, where so many run: --threads, or the cores shared out.
int threads_for(const BenchOptions& options, size_t replicas);

// Two devices of what there is: two GPUs, else one twice, else the processor twice.
std::string default_pair();

// The list as --devices takes it, repetitions counted: "cpux2", "cuda:0,cuda:1", "cuda:0x2,cpu".
std::string spec_of(std::span<const torch::Device> devices);

// Throws UsageError that offers lists which have as many: "[cpu] has 1 device, this needs 2".
void need_devices(const std::vector<torch::Device>& devices, size_t count, const std::string& who);

// Throws MemoryError, with both figures, when the host has not so many bytes free. `remedy`: a flag to lower.
void need_host_memory(int64_t bytes, const std::string& what, const std::string& remedy);

// The same for each GPU of the list; bytes[i]: on devices[i], of which several may be one GPU.
void need_gpu_memory(std::span<const torch::Device> devices, std::span<const int64_t> bytes,
                     const std::string& what, const std::string& remedy);

}  // namespace lockstep
