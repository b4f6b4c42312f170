// Where and how a benchmark ran, for its preamble and its JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

// The command as it was typed, without the folder of the program: "lockstep bench allreduce --devices cpux2".
std::string command_line();

// {"date", "lockstep", "processor", "cores", "instructions", "memory_bytes", "gpus": [...], "libraries":
// {...}}
nlohmann::ordered_json environment_json();

// The same in `#` lines.
std::string environment_text();

}  // namespace lockstep
