// Where and how a command runs, for the preamble of its output and for its files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

// The command as typed, without the program's folder: "lockstep bench allreduce --devices cpux2".
std::string command_line();

// {"date" (UTC), "commit", "cpu", "cores", "instructions", "memory_bytes", "gpus": [...], "libraries": {...}}
nlohmann::ordered_json environment_json();

// The command and the environment as lines that begin with `#`.
std::string environment_text();

}  // namespace lockstep
