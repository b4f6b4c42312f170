#include <lockstep/support/module_tensors.h>

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <unordered_set>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

std::vector<NamedTensor> distinct(const torch::OrderedDict<std::string, torch::Tensor>& registered) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<NamedTensor> tensors;
  for (const auto& item : registered) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) tensors.push_back({item.key(), item.value()});
  }
  return tensors;
}

bool is_among(std::span<const NamedTensor> tensors, const torch::Tensor& tensor) {
  return std::ranges::any_of(tensors, [&](const auto& item) { return item.tensor.is_same(tensor); });
}

}  // namespace

std::vector<NamedTensor> distinct_parameters(const torch::nn::Module& module) {
  return distinct(module.named_parameters());
}

std::vector<NamedTensor> distinct_buffers(const torch::nn::Module& module) {
  return distinct(module.named_buffers());
}

std::vector<NamedTensor> distinct_tensors(const torch::nn::Module& module) {
  auto tensors = distinct_parameters(module);
  for (auto& buffer : distinct_buffers(module)) tensors.push_back(std::move(buffer));
  return tensors;
}

void require_strided(const torch::nn::Module& module) {
  for (const auto& [name, tensor] : distinct_tensors(module)) {
    const bool strided = tensor.layout() == torch::kStrided;
    if (strided && !tensor.is_quantized()) continue;
    throw UsageError(
        fmt::format("{} is a {} tensor, which replicas cannot copy", name, strided ? "quantized" : "sparse"),
        "register it in dense form; or keep it as a member of the module that is not registered");
  }
}

std::optional<std::string> changed_registration(const torch::nn::Module& module,
                                                std::span<const NamedTensor> before) {
  size_t same = 0;
  const auto is_known = [&](const torch::Tensor& tensor) {
    if (same == before.size() || !before[same].tensor.is_same(tensor)) {
      return is_among(before.first(same), tensor);  // a tied one comes again
    }
    ++same;
    return true;
  };
  if (std::ranges::all_of(module.parameters(), is_known) && same == before.size()) return std::nullopt;
  const auto now = distinct_parameters(module);
  for (const auto& [name, tensor] : now) {
    if (!is_among(before, tensor)) return "parameter " + name + " was registered";
  }
  for (const auto& [name, tensor] : before) {
    if (!is_among(now, tensor)) return "parameter " + name + " was replaced or removed";
  }
  return "parameters were registered in another order";
}

}  // namespace lockstep
