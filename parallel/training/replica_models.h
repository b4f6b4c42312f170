// Copies of one model, and of its data, on several devices.
#pragma once

#include <torch/types.h>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// Throws UsageError for a factory that is an empty function. name: of the data set, "training".
void require_factories(const ModelFactory& model, const SourceFactory& training);
void require_factory_of_set(const SourceFactory& source, std::string_view name);

// Returns the factory's model. Throws UsageError for one without a module or a loss.
Model new_model(const ModelFactory& factory);

// Throws UsageError when two of these models have a parameter or buffer in common.
void require_separate_models(std::span<const Model> models);

// Moves a module's parameters and buffers to a device and converts floating-point and complex ones to
// `dtype`, as converted_type() says. Others (counters) keep their type, which Module::to() would convert.
// Expanded tensors become contiguous.
void move_module(torch::nn::Module& module, torch::Device device, torch::ScalarType dtype);

// Returns this parameter of the first replica on the device. Throws UsageError for an unknown name, and
// DeviceError ("not initialized on <device>", with the devices that have it) when no replica is there.
torch::Tensor read_parameter(std::span<const Model> replicas, std::string_view name, torch::Device device);

// Returns one source per replica. Calls the factory once per distinct device. Throws UsageError if it
// returns null.
std::vector<std::shared_ptr<const BatchSource>> sources_for(std::span<const torch::Device> devices,
                                                            const SourceFactory& factory);

}  // namespace lockstep
