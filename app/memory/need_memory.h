// Refuses what cannot fit before any of it is done.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

struct TrainPlan;

// Throws MemoryError, with both figures, when the host has not so many bytes free. `remedy`: a flag to lower.
void need_host_memory(int64_t bytes, const std::string& what, const std::string& remedy);

// The same for each GPU of the list; bytes[i]: on devices[i], of which several may be one GPU.
void need_gpu_memory(std::span<const torch::Device> devices, std::span<const int64_t> bytes,
                     const std::string& what, const std::string& remedy);

// The same for the replicas of these plans on the host, all of them alive at once. At least one plan.
void need_memory_for(std::span<const TrainPlan> plans);

}  // namespace lockstep
