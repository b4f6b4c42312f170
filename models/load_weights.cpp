#include <lockstep/models/load_weights.h>

#include <torch/nn/module.h>

#include <vector>

#include <lockstep/support/load_tensors.h>

namespace lockstep {

void load_weights_into(torch::nn::Module& module, std::span<const NamedTensor> weights) {
  std::vector<NamedTensor> all;  // tied weights under each of their names
  for (const auto& registered : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : registered) all.push_back({item.key(), item.value()});
  }
  load_tensors(
      all, weights,
      {.name = "model", .parts = "parameters and buffers", .hint = "these are weights of another model"});
}

}  // namespace lockstep
