// lockstep train: trains a recipe on a list of devices.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include <lockstep/app/processes/process_flags.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/flags.h>
#include <lockstep/parallel/world/world.h>

namespace lockstep {

void setup_train(CLI::App& app);

// Returns the flags, completed by the configuration of the run that goes on: take_run_config().
using CompleteFlags = std::function<TrainFlags(const nlohmann::ordered_json& run, const World& place)>;

// Joins the processes of the world, if there are several, before anything is read or written, and trains with
// them. Process 0 alone prints and writes files.
void run_train(const TrainFlags& flags, const ProcessFlags& processes, ColorMode color,
               const CompleteFlags& complete);

}  // namespace lockstep
