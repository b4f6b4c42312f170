// Warnings of values that are allowed but probably a mistake.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/train/plan/plan.h>

namespace lockstep {

// A replica with more threads than this process has cores, or with fewer than its share of them because
// OpenMP grants no more. threads: empty for the default. replicas: of this process.
std::optional<std::string> threads_notice(std::optional<int> threads, int replicas);

// A learning rate far above the recipe's for this optimizer.
std::optional<std::string> rate_notice(const TrainPlan& plan);

// bf16 on a CPU without AVX-512, unless the model computes in fp32 there.
std::optional<std::string> bf16_notice(const TrainPlan& plan);

// Replicas without images, and more micro-batches than images, in a full batch.
std::vector<std::string> batch_notices(const TrainPlan& plan);

// Warnings about this machine: too many or too few threads, slow bf16, GPUs that cannot read each other's
// memory.
std::vector<std::string> machine_notices(const TrainPlan& plan);

}  // namespace lockstep
