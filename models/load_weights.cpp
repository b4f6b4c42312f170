#include <lockstep/models/load_weights.h>

#include <torch/nn/module.h>

#include <vector>

#include <lockstep/support/load_tensors.h>

namespace lockstep {

void load_weights_into(torch::nn::Module& module, std::span<const NamedTensor> weights) {
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) tensors.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers()) tensors.push_back({item.key(), item.value()});
  load_tensors(
      tensors, weights,
      {.name = "model", .parts = "parameters and buffers", .hint = "these are weights of another model"});
}

}  // namespace lockstep
