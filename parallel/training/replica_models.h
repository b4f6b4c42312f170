// Copies of one model on several devices.
#pragma once

#include <torch/types.h>

#include <span>
#include <string_view>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// Throws UsageError when two of these models have a parameter or buffer in common.
void require_separate_models(std::span<const Model> models);

// Moves a module's parameters and buffers to a device and converts floating-point and complex ones to
// `dtype`, as converted_type() says. Others (counters) keep their type, which Module::to() would convert.
// Expanded tensors become contiguous.
void move_module(torch::nn::Module& module, torch::Device device, torch::ScalarType dtype);

// Returns this parameter of the first replica on the device. Throws UsageError for an unknown name, and
// DeviceError ("not initialized on <device>", with the devices that have it) when no replica is there.
torch::Tensor read_parameter(std::span<const Model> replicas, std::string_view name, torch::Device device);

}  // namespace lockstep
