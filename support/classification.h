// Makes a Model, which returns sums, from a network that returns logits.
#pragma once

#include <memory>
#include <utility>

#include <lockstep/support/types.h>

namespace lockstep {

// Cross-entropy summed over the rows, and the numbers of correct rows. logits: (n, classes) floating point,
// with at least one class. y: (n), each 0 .. classes - 1; int64, or another integer type, which is converted.
// n may be 0. A row counts for top5 when fewer than five logits are larger than its class's. The loss is
// differentiable; the counts are not.
//
// Throws DataError for labels that are no integers, that do not fit the logits in shape, and, on a CPU, that
// are not among the classes. That includes -100, torch's ignore_index: a row without a class would still
// count in the mean loss. On a GPU labels are not looked at, since the host would have to wait for it: torch
// ends the process's work there by a device-side assertion.
Outcome classification_outcome(const torch::Tensor& logits, const torch::Tensor& y);

// {loss, top1, top5} as one tensor (3) float64 on the same device, detached from the graph.
torch::Tensor sums_of(const Outcome& outcome);

// A factory of models from a LibTorch module. Net derives from torch::nn::Module and has
// `Tensor forward(Tensor X)`, which takes Inputs::X and returns logits (n, classes). Each call of the factory
// constructs a Net from copies of `args`. If Net has `use_bf16_weights(Params)`, the model has it, too.
//   const auto factory = model_factory<MyNetImpl>(/*hidden=*/128);
template <class Net, class... Args>
ModelFactory model_factory(Args... args) {
  return [args...] {
    auto net = std::make_shared<Net>(args...);
    Model model{net,
                [net](const Inputs& rows) { return classification_outcome(net->forward(rows.X), rows.y); }};
    if constexpr (requires(Params weights) { net->use_bf16_weights(weights); }) {
      model.use_bf16_weights = [net](const Params& weights) { net->use_bf16_weights(weights); };
    }
    return model;
  };
}

}  // namespace lockstep
