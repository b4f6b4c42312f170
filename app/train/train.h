// lockstep train: trains a recipe on a list of devices.
#pragma once

#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/flags.h>

namespace lockstep {

void setup_train(CLI::App& app);
void run_train(TrainFlags flags, ColorMode color);

}  // namespace lockstep
