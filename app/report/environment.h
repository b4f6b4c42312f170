// Where and how a command ran, for a preamble or a file that keeps its results.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

// The command as it was typed, without the folder of the program: "lockstep bench allreduce --devices cpux2".
std::string command_line();

// {"date" (UTC), "processor", "cores", "instructions", "memory_bytes", "gpus": [...], "libraries": {...}}
nlohmann::ordered_json environment_json();

// The same in `#` lines.
std::string environment_text();

}  // namespace lockstep
