// Flags that make no sense together: one table, each with the reason.
#pragma once

#include <c10/core/Device.h>

#include <span>

#include <lockstep/app/train/flags.h>
#include <lockstep/app/train/recipe.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/parallel/training/step_graph.h>

namespace lockstep {

// Throws UsageError for the first combination that makes no sense.
void check_combinations(const TrainFlags& options, const Recipe& recipe);

bool any_gpu(std::span<const torch::Device> devices);

// Throw UsageError for what none of the devices has.
void check_precision(Precision precision, std::span<const torch::Device> devices);
void check_cuda_graph(CudaGraph graph, std::span<const torch::Device> devices);

}  // namespace lockstep
