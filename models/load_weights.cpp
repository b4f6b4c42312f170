#include <lockstep/models/load_weights.h>

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <map>
#include <sstream>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

std::string shape_of(const torch::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.sizes();
  return out.str();
}

std::map<std::string, torch::Tensor> tensors_of(torch::nn::Module& module) {
  std::map<std::string, torch::Tensor> result;
  for (const auto& item : module.named_parameters()) result.emplace(item.key(), item.value());
  for (const auto& item : module.named_buffers()) result.emplace(item.key(), item.value());
  return result;
}

}  // namespace

void load_weights_into(torch::nn::Module& module, std::span<const NamedTensor> weights) {
  constexpr const char* kHint = "these are weights of another model";
  auto missing = tensors_of(module);
  const auto tensors = missing;
  for (const auto& [name, tensor] : weights) {
    const auto place = tensors.find(name);
    if (place == tensors.end())
      throw WeightsError(fmt::format("the model has no parameter named {}", name), kHint);
    if (place->second.sizes() != tensor.sizes()) {
      throw WeightsError(
          fmt::format("{} has shape {}, the model's has {}", name, shape_of(tensor), shape_of(place->second)),
          kHint);
    }
    if (missing.erase(name) == 0)
      throw WeightsError(fmt::format("there are two tensors named {}", name), "each name may occur once");
  }
  if (!missing.empty()) {
    throw WeightsError(
        fmt::format("{} of the model's {} parameters and buffers have no weights: {}{}", missing.size(),
                    tensors.size(), missing.begin()->first, missing.size() > 1 ? ", ..." : ""),
        kHint);
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : weights) tensors.at(name).detach().copy_(tensor);
}

}  // namespace lockstep
