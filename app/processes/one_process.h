// Commands that run in one process.
#pragma once

#include <string>

#include <lockstep/parallel/world/world.h>

namespace lockstep {

// Throws UsageError if a launcher has started this process as one of several: each of them would do all of
// the work. `command`: for the message, such as "bench allreduce".
void refuse_several_processes(const std::string& command,
                              const Environment& environment = process_environment());

}  // namespace lockstep
