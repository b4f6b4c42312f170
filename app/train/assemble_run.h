// Before anything is read or written: the processes of a run, their devices, and the files that process 0
// keeps.
#pragma once

#include <functional>

#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/train/plan/flags.h>

namespace lockstep {

// Runs `check` in every process, and asks all for their devices: afterwards world.devices is there. Processes
// of one machine that may use the same cores share them: this thread is pinned to its process's part.
// Processes other than the first get the first one's output flags, which say when all compute sums or collect
// weights; they are quiet. Throws as together() does, and what parsing the devices throws. Alone: runs
// `check` only.
void assemble_run(TrainWorld& world, TrainFlags& options, const std::function<void()>& check);

}  // namespace lockstep
