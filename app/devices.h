// `lockstep devices`: what this machine has to train on, and how to name it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/support/cuda_info.h>

namespace CLI {
class App;
}

namespace lockstep {

struct Machine {
  std::string processor;  // its model name
  int cores = 1;          // that this process may use
  std::string instructions;
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;
  std::vector<CudaDevice> gpus;
  std::optional<std::string> gpu_problem;                      // why there are none
  std::vector<std::pair<std::string, std::string>> libraries;  // name, version
};

Machine this_machine();
std::string describe(const Machine& machine);

void setup_devices(CLI::App& app);
void run_devices();

}  // namespace lockstep
