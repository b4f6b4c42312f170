// What is allowed but probably not meant: sentences for warn().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/train/plan.h>

namespace lockstep {

// A replica with more threads than this process has cores.
std::optional<std::string> threads_notice(int threads);

// A learning rate far above what the recipe takes with this optimizer.
std::optional<std::string> rate_notice(const TrainPlan& plan);

// What this machine makes of the plan: its threads, GPUs that cannot read each other's memory.
std::vector<std::string> machine_notices(const TrainPlan& plan);

}  // namespace lockstep
