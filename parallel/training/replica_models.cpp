#include <lockstep/parallel/training/replica_models.h>

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <map>
#include <string>
#include <vector>

#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/error.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {

void require_factories(const ModelFactory& model, const SourceFactory& training) {
  if (!model) throw UsageError("the model factory is empty", "such as model_factory<Net>()");
  require_factory_of_set(training, "training");
}

void require_factory_of_set(const SourceFactory& source, std::string_view name) {
  if (source) return;
  throw UsageError(fmt::format("the factory of the {} set is empty", name),
                   "give a function that returns a BatchSource on a device");
}

Model new_model(const ModelFactory& factory) {
  auto model = factory();
  if (!model.module || !model.loss_sum) {
    throw UsageError(
        fmt::format("the model factory returned a model without {}", model.module ? "loss_sum" : "module"),
        "a Model has both: the module, and the function that computes its loss. A loss that is ready, "
        "such as mse(), needs the net's output: give model_factory() one by .output(), where the net has"
        " no forward() of one tensor");
  }
  return model;
}

void require_separate_models(std::span<const Model> models) {
  std::map<const c10::TensorImpl*, const Model*> owners;
  for (const auto& model : models) {
    for (const auto& [name, tensor] : distinct_tensors(*model.module)) {
      if (owners.emplace(tensor.unsafeGetTensorImpl(), &model).first->second == &model) continue;
      throw UsageError(
          fmt::format("two replicas have one tensor {}: the model factory returned one module twice, or "
                      "models with a part in common",
                      name),
          "build a new module, with all its parts, in each call of the factory");
    }
  }
}

// An expanded tensor, several of whose elements lie in one place, cannot be written: it gets memory for all.
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

std::vector<std::shared_ptr<const BatchSource>> sources_for(std::span<const torch::Device> devices,
                                                            const SourceFactory& factory) {
  std::map<std::string, std::shared_ptr<const BatchSource>> by_device;
  std::vector<std::shared_ptr<const BatchSource>> sources;
  for (const auto& device : devices) {
    auto& source = by_device[device.str()];
    if (!source) source = factory(device);
    if (!source) {
      throw UsageError(fmt::format("a factory of the data returned null on {}", device.str()),
                       "return a BatchSource on the device");
    }
    sources.push_back(source);
  }
  return sources;
}

}  // namespace lockstep
