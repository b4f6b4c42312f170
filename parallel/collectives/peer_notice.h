// The warning about GPUs of a device list that cannot read each other's memory directly.
#pragma once

#include <torch/types.h>

#include <functional>
#include <optional>
#include <span>
#include <string>

#include <lockstep/support/cuda/info.h>

namespace lockstep {

// A warning that names the GPUs of the list that cannot read each other's memory, so that copies between them
// go through the host; nullopt if there are none. access(a, b): whether GPU a can read b's memory.
std::optional<std::string> peer_notice(std::span<const torch::Device> devices,
                                       const std::function<bool(int, int)>& access = cuda_peer_access);

}  // namespace lockstep
