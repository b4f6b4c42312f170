// `lockstep devices`: the devices of this machine, and how --devices names them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include <lockstep/app/machine/machine.h>

namespace CLI {
class App;
}

namespace lockstep {

// For people.
std::string describe(const Machine& machine);

// {"cpu": {"name", "cores", "instructions", "memory_bytes", "free_bytes"},
//  "gpus": [{"device", "name", "capability", "multiprocessors", "memory_bytes", "free_bytes"}],
//  "gpu_problem": why there is no GPU or null, "versions": {library: version}}
nlohmann::ordered_json to_json(const Machine& machine);

void setup_devices(CLI::App& app);

}  // namespace lockstep
