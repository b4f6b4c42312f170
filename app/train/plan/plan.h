// Plans a training run, before anything is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/recipe.h>
#include <lockstep/app/train/plan/train_plan.h>

namespace lockstep {

// Reads the data and builds the model once. Writes nothing. The options have passed check_combinations().
// `data`: as_read of another plan with the same data flags and seed, so that they are read and held once.
// `world`: of several processes, after assemble_run(). Throws UsageError for values that make no sense with
// these devices, then what reading the data and building the model throw.
TrainPlan make_train_plan(const TrainFlags& options, std::optional<LoadedData> data = {},
                          const TrainWorld& world = {});

// Throws UsageError as make_train_plan() does, without reading data.
void check_train_values(const TrainFlags& options);

// The table that a run prints first. A row with more than `width` columns goes on below its value.
std::string describe(const TrainPlan& plan, size_t width = std::string::npos);

// Parses --split's shares, such as "3:1". Throws UsageError.
std::vector<double> parse_shares(const std::string& text);

// The engine's options as far as flags and recipe say them, for any devices. Throws UsageError as
// parse_shares() does.
TrainerOptions trainer_options_of(const TrainFlags& flags, const Recipe& recipe);

}  // namespace lockstep
