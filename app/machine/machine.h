// This machine: its CPU, memory and GPUs, and the libraries of this build.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/support/cuda/info.h>

namespace lockstep {

struct Machine {
  std::string cpu;  // its model name
  int cores = 1;    // this process may use them
  int online = 1;   // the whole machine has them
  std::string instructions;
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;
  std::vector<CudaDevice> gpus;
  std::optional<std::string> gpu_problem;                      // why there is none
  std::vector<std::pair<std::string, std::string>> libraries;  // name, version
};

Machine this_machine();

// "2 cores"; "2 of 16 cores" where the process may not use all.
std::string cores_text(const Machine& machine);

}  // namespace lockstep
