// Refuses work that cannot fit into memory, before it starts.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

// Throws MemoryError with both figures if the host has less memory free than `bytes`. `what`: the work, for
// the message. `remedy`: the flag to lower.
void need_host_memory(int64_t bytes, const std::string& what, const std::string& remedy);

// The same for each GPU of the list. bytes[i] is needed on devices[i]; a GPU may be listed more than once.
void need_gpu_memory(std::span<const torch::Device> devices, std::span<const int64_t> bytes,
                     const std::string& what, const std::string& remedy);

}  // namespace lockstep
