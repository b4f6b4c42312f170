// Names of the library in its hints, as the program's flags.
#pragma once

#include <string>

namespace lockstep {

// Returns the hint of a library error with flags in place of the library's names: "use CudaGraph::kAuto"
// becomes "use --cuda-graph auto".
std::string with_flags(std::string hint);

}  // namespace lockstep
