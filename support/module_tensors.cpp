#include <lockstep/support/module_tensors.h>

#include <torch/nn/module.h>

#include <unordered_set>

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

}  // namespace lockstep
