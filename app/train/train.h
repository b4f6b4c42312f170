// lockstep train: trains a recipe on a list of devices.
#pragma once

#include <lockstep/app/processes/process_flags.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/flags.h>

namespace lockstep {

void setup_train(CLI::App& app);

// Joins the processes of the world, if there are several, before anything is read or written, and trains with
// them. Process 0 alone prints and writes files.
void run_train(const TrainFlags& flags, const ProcessFlags& processes, ColorMode color);

}  // namespace lockstep
