// The values of a training by name. One table serves the plan's JSON, the settings of benchmarks and sweeps,
// and what processes agree on.
#pragma once

#include <nlohmann/json.hpp>

#include <lockstep/app/train/flags.h>
#include <lockstep/app/train/plan.h>

namespace lockstep {

// Whose settings: a benchmark's or a sweep's.
enum class SettingsOf { kBench, kSweep };

// All values of the run.
nlohmann::ordered_json plan_fields(const TrainPlan& plan);

// What all processes of a run must have in common. Their devices, threads and files may differ.
nlohmann::ordered_json agreed_fields(const TrainFlags& flags, const TrainPlan& plan);

// What all measurements of a benchmark, or all cells of a sweep, have in common. A value that each plan
// derives from its own devices is given as the flags have it, else as the recipe has it. plan: any of the
// plans.
nlohmann::ordered_json shared_fields(SettingsOf settings, const TrainFlags& flags, const TrainPlan& plan);

}  // namespace lockstep
