// Combinations of flags, and of flags and devices, that are refused.
#pragma once

#include <c10/core/Device.h>

#include <span>

#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/recipe.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/parallel/training/replica_options.h>

namespace lockstep {

// Throws UsageError for the first combination that makes no sense, with the reason.
void check_combinations(const TrainFlags& options, const Recipe& recipe);

// Throws UsageError unless --invariant works with this number of replicas.
void check_invariant(int replicas);

// Throws UsageError for an algorithm of one process where there are several, for one between processes where
// there is one, and for NCCL without a GPU. devices: of this process.
void check_allreduce(const TrainWorld& world, Allreduce allreduce, std::span<const torch::Device> devices);

// Returns `wanted`, with kAuto resolved, for sums over all replicas of the world. devices: of this process.
// Throws UsageError or DeviceError if `wanted` cannot sum over them.
Allreduce allreduce_of(const TrainWorld& world, Allreduce wanted, std::span<const torch::Device> devices);

// Throws UsageError for compression where this process is alone: it sends nothing.
void check_compress_of(const TrainWorld& world, Compress compress);

// Throw UsageError for a value that is for GPUs where there is none.
void check_precision(Precision precision, std::span<const torch::Device> devices);
void check_cuda_graph(CudaGraph graph, std::span<const torch::Device> devices);

}  // namespace lockstep
