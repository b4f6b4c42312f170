// Combinations of flags that are refused.
#pragma once

#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/recipe.h>

namespace lockstep {

// Throws UsageError for the first combination that makes no sense, with the reason. TrainerOptions::
// check_combination() has those that the engine refuses; here are those that only flags know.
void check_combinations(const TrainFlags& flags, const Recipe& recipe);

}  // namespace lockstep
