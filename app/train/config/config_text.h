// A configuration that repeats a run: for --print-config and for run folders.
#pragma once

#include <string>

#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/settings/setting.h>

namespace lockstep {

// A data folder whose name a configuration cannot hold: an error of usage, or a comment in its place.
enum class Unwritable { kRefused, kComment };

// Returns the text of a file for --config. It has every value that the weights and the evaluation depend on,
// also those derived from the recipe, the devices and the machine. It begins with comments. It leaves out
// flags that name files, or say what is printed and kept, except log-every. For several processes it has
// devices only if all have the same, and threads only if they were given. flags: those of the plan.
// in: which settings (setting.h); those of checkpoints are kInConfig | kKept, without threads and ways of
// summing that nobody gave.
std::string config_text(const TrainFlags& flags, const TrainPlan& plan, unsigned in = kInConfig,
                        Unwritable unwritable = Unwritable::kRefused);

}  // namespace lockstep
