// lockstep program show: an exported program, and what a run can do with it.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace lockstep {

void setup_program(CLI::App& app);

// Prints the program as text or as one JSON object. Throws WeightsError for a file that is refused.
void run_program_show(const std::string& path, bool json);

}  // namespace lockstep
