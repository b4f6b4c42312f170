#include <lockstep/models/load_weights.h>

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include <lockstep/support/error.h>
#include <lockstep/support/load_tensors.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {
namespace {

constexpr const char* kHint = "these are weights of another model";

// The first name of each tensor of the module, by all of its names.
std::map<std::string, std::string> first_names(const torch::nn::Module& module) {
  std::map<const c10::TensorImpl*, std::string> first;
  for (const auto& [name, tensor] : distinct_tensors(module)) {
    first.emplace(tensor.unsafeGetTensorImpl(), name);
  }
  std::map<std::string, std::string> names;
  for (const auto& registered : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : registered) {
      names.emplace(item.key(), first.at(item.value().unsafeGetTensorImpl()));
    }
  }
  return names;
}

// names: first_names(). The weights under the first names of the module's tensors. Those that name one tensor
// in several ways must agree, and are there once.
std::vector<NamedTensor> by_first_names(const std::map<std::string, std::string>& names,
                                        std::span<const NamedTensor> weights) {
  std::map<std::string, const NamedTensor*> taken;  // by first name
  std::vector<NamedTensor> result;
  for (const auto& weight : weights) {
    const auto name = names.find(weight.name);
    const auto& first = name == names.end() ? weight.name : name->second;
    const auto [place, is_new] = taken.emplace(first, &weight);
    const auto& other = *place->second;
    if (is_new || other.name == weight.name) {
      result.push_back({first, weight.tensor});
    } else if (other.tensor.scalar_type() != weight.tensor.scalar_type() ||
               !other.tensor.equal(weight.tensor)) {
      throw WeightsError(
          fmt::format("{} and {} are one tensor of the model, but two different ones of the weights",
                      other.name, weight.name),
          kHint);
    }
  }
  return result;
}

}  // namespace

void load_weights_into(torch::nn::Module& module, std::span<const NamedTensor> weights) {
  const TensorOwner owner{.name = "model", .parts = "parameters and buffers", .hint = kHint};
  const auto first = first_names(module);
  std::set<std::string> names;
  for (const auto& [name, first_name] : first) names.insert(name);
  refuse_wrapped(names, weights, owner);
  load_tensors(distinct_tensors(module), by_first_names(first, weights), owner);
}

}  // namespace lockstep
