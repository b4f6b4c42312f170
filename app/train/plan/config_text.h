// A configuration that repeats a run: for --print-config and for run folders.
#pragma once

#include <string>

#include <lockstep/app/train/flags.h>
#include <lockstep/app/train/plan/plan.h>

namespace lockstep {

// Returns the text of a file for --config, with all that the weights and the evaluation depend on: what was
// derived from the recipe, the devices and the machine is written as a value. The first lines are comments.
// Flags that name files, or say what is printed and kept, are left out but for log-every. Of several
// processes each has devices and threads of its own: devices are written if all have the same, threads if
// they were given. flags: the ones that the plan was made from. Throws UsageError if the folder of the data
// has a name that a configuration cannot hold.
std::string config_text(const TrainFlags& flags, const TrainPlan& plan);

}  // namespace lockstep
