// `lockstep devices`: the devices of this machine, and how --devices names them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/support/cuda/info.h>

namespace CLI {
class App;
}

namespace lockstep {

struct Machine {
  std::string cpu;  // its model name
  int cores = 1;    // those that this process may use
  int online = 1;   // those of the machine
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

// For people.
std::string describe(const Machine& machine);

// {"cpu": {"name", "cores", "instructions", "memory_bytes", "free_bytes"},
//  "gpus": [{"device", "name", "capability", "multiprocessors", "memory_bytes", "free_bytes"}],
//  "gpu_problem": why there is no GPU or null, "versions": {library: version}}
nlohmann::ordered_json to_json(const Machine& machine);

void setup_devices(CLI::App& app);

}  // namespace lockstep
