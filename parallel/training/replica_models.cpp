#include <lockstep/parallel/training/replica_models.h>

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/error.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {
void move_module(torch::nn::Module& module, torch::Device device, torch::ScalarType dtype) {
  for (auto& [name, tensor] : distinct_tensors(module)) {
    auto moved = tensor.to(device, converted_type(tensor.scalar_type(), dtype));
    if (at::has_internal_overlap(moved) == at::MemOverlap::Yes) moved = moved.contiguous();
    tensor.set_data(moved);
  }
}

torch::Tensor read_parameter(std::span<const Model> replicas, std::string_view name, torch::Device device) {
  std::vector<torch::Device> holders;
  for (const auto& replica : replicas) {
    const auto params = replica.module->named_parameters();
    const auto* param = params.find(std::string(name));
    if (!param) {
      throw UsageError(
          fmt::format("the model has no parameter named '{}'", name),
          fmt::format("the first of its {} parameters is '{}'", params.size(), params.front().key()));
    }
    if (param->device() == device) return *param;
    holders.push_back(param->device());
  }
  throw DeviceError(fmt::format("parameter {} is not initialized on {}", name, device.str()),
                    fmt::format("it was only initialized on {}", to_string(holders)));
}

}  // namespace lockstep
