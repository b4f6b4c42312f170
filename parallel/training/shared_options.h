// The options of a Trainer that must be the same in all processes.
#pragma once

#include <string>
#include <vector>

#include <lockstep/parallel/trainer_options.h>

namespace lockstep {

// One per line: "momentum 0.9". Without those that make_communicator() and GradientSync::attach() compare:
// allreduce, compress and replica.sync.
std::vector<std::string> shared_option_lines(const TrainerOptions& options);

}  // namespace lockstep
