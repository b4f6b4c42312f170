// Copies of one model on several devices.
#pragma once

#include <torch/types.h>

#include <span>
#include <string_view>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// Moves a module's parameters and buffers to a device; those of floating point to `dtype`, others (counters)
// keep theirs, where Module::to() would convert them too.
void move_module(torch::nn::Module& module, torch::Device device, torch::ScalarType dtype);

// The parameter of that name on that device, of the first replica there. Throws DeviceError, "not initialized
// on <device>", with the devices that have it, when no replica is there; UsageError for an unknown name.
torch::Tensor read_parameter(std::span<const Model> replicas, std::string_view name, torch::Device device);

}  // namespace lockstep
