// The words of a plan for its sums of gradients, and for what replicas share out.
#pragma once

#include <string>

#include <lockstep/app/train/plan/train_plan.h>

namespace lockstep {

// When gradients are summed, and by what.
std::string gradients_text(const TrainPlan& plan);

// The memory of each replica, and the share of it that --shard leaves: "516 KB of weights, ...".
std::string held_text(const TrainPlan& plan);

}  // namespace lockstep
