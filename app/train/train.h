// lockstep train: trains a recipe on a list of devices.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include <lockstep/app/processes/process_flags.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/parallel/world/world.h>

namespace lockstep {

void setup_train(CLI::App& app);

// The command's part in a run that goes on with its own configuration: resumes_in_place(), and the flags
// after apply_run_config().
struct RunFlags {
  std::function<bool(const nlohmann::ordered_json& run, const World& place)> in_place;
  std::function<TrainFlags(const nlohmann::ordered_json& run, bool in_place)> complete;
};

// Joins the processes of the world, if there are several, before anything is read or written, and trains with
// them. Process 0 alone prints and writes files.
void run_train(const TrainFlags& flags, const ProcessFlags& processes, ColorMode color,
               const RunFlags& of_run);

}  // namespace lockstep
