// Warnings of values that are allowed but probably a mistake.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/app/train/plan/plan.h>

namespace lockstep {

// A replica with more threads than this process has cores. threads: empty for the default.
std::optional<std::string> many_threads_notice(std::optional<int> threads);

// A replica on a CPU with fewer threads than its share of the cores because OpenMP grants no more. devices:
// of the replicas of this process.
std::optional<std::string> few_threads_notice(std::optional<int> threads,
                                              std::span<const torch::Device> devices);

// A learning rate far above the recipe's for this optimizer.
std::optional<std::string> rate_notice(const TrainPlan& plan);

// bf16 on a CPU without AVX-512, unless the model computes in fp32 there.
std::optional<std::string> bf16_notice(const TrainPlan& plan);

// fp16 on a CPU, unless the model computes in fp32 there.
std::optional<std::string> fp16_notice(const TrainPlan& plan);

// Replicas that share out the state of an optimizer which has none.
std::optional<std::string> shard_notice(const TrainPlan& plan);

// Replicas without images, and more micro-batches than images, in a full batch.
std::vector<std::string> batch_notices(const TrainPlan& plan);

// Warnings about what is trained: what is odd in the files of the data, a program that is as after Python's
// eval(), numbers of the data that are not finite.
std::vector<std::string> task_notices(const TrainPlan& plan);

// Returns what is odd about rows as images for a model of lockstep: floats that are as large as bytes, and
// channels that seem to come last.
std::vector<std::string> pixel_notices(const TrainingData& data);

// A number of these rows that is not finite.
std::optional<std::string> not_finite_notice(const RowFaults& faults);

// Warnings about this machine: too many or too few threads, slow bf16 or fp16, GPUs that cannot read each
// other's memory.
std::vector<std::string> machine_notices(const TrainPlan& plan);

}  // namespace lockstep
