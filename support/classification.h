// From a network that gives logits to a Model that gives sums.
#pragma once

#include <memory>
#include <utility>

#include <lockstep/support/types.h>

namespace lockstep {

// Cross-entropy summed over the rows, and the rows that were right. logits (n, classes) floating point, y (n)
// int64, classes at least 1, n may be 0. A row is among the top five when fewer than five logits are larger
// than its own. The loss keeps logits' graph, the counts have none.
Outcome classification_outcome(const torch::Tensor& logits, const torch::Tensor& y);

// The three in one: (3) double = {loss, top1, top5}, on their device, without a graph.
torch::Tensor sums_of(const Outcome& outcome);

// A model from a LibTorch module: Net is a module's implementation (a class derived from torch::nn::Module
// with `Tensor forward(Tensor X)`, X as in Inputs, that returns logits); each call of the factory makes one
// from copies of `args`.
//   const auto factory = model_factory<MyNetImpl>(/*hidden=*/128);
template <class Net, class... Args>
ModelFactory model_factory(Args... args) {
  return [args...] {
    auto net = std::make_shared<Net>(args...);
    Model model{net,
                [net](const Inputs& rows) { return classification_outcome(net->forward(rows.X), rows.y); }};
    if constexpr (requires(Params copies) { net->use_bf16_weights(copies); }) {
      model.use_bf16_weights = [net](const Params& copies) { net->use_bf16_weights(copies); };
    }
    return model;
  };
}

}  // namespace lockstep
