// Activation checkpointing: a part of a model forgets what its backward pass needs, and computes it again
// there. It costs one more forward pass of the part, and saves its activations' memory.
//
//   torch::Tensor forward(torch::Tensor x) {
//     for (auto& block : blocks) x = recompute(block, x);  // instead of block->forward(x)
//     return head(x);
//   }
//
// As torch.utils.checkpoint with use_reentrant=False: the graph is the one without it, only the tensors saved
// in it are replaced by the number of the tensor. When backward first asks for one, the part runs again, as
// far as the last saved tensor, and each is dropped where backward is done with it. So results and gradients
// have the same bits as without it, for parameters with several uses, too; GradientSync's hooks fire as
// without it; and no input needs a gradient. May be nested, and backward may come twice (retain_graph) or
// with create_graph: the part then runs once for each backward pass, and a pass that retains the graph keeps
// what was computed again until the next one, or the graph's end.
//
// The second run has the surroundings of the first: torch's autocast on CPUs and GPUs, the numbers that CPU
// operations draw without a generator (ThreadRandom, or torch's default generator), and those of the default
// generator of each GPU that holds an input. The generators themselves are left as they were found.
//
// Without grad mode (torch::NoGradGuard) the part just runs. A replica throws UsageError where other replicas
// of its process are on its GPU: they draw from one generator, which the second run sets back. A Trainer with
// CudaGraph::kAuto does not capture its steps, and with kOn throws FailedError.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep {

// The first run of a part, while one lives: operations of this thread save no tensors. The templates below
// use it.
class RecomputedPart {
 public:
  using Inputs = std::vector<torch::Tensor>;
  using Run = std::function<void(const Inputs&)>;

  // run: the part. buffers: what a second run shall leave as it was.
  RecomputedPart(Run run, const Inputs& inputs, std::vector<torch::Tensor> buffers);
  ~RecomputedPart();
  RecomputedPart(const RecomputedPart&) = delete;
  RecomputedPart& operator=(const RecomputedPart&) = delete;

 private:
  class Scope;
  const std::unique_ptr<Scope> scope_;
};

template <class Holder>
concept ModulePointer = requires(const Holder& holder) {
  { *holder } -> std::convertible_to<const torch::nn::Module&>;
};

namespace detail {

template <class Function, class... Inputs>
auto recompute_keeping(std::vector<torch::Tensor> buffers, Function function, const Inputs&... inputs) {
  const auto again = [function](const RecomputedPart::Inputs& given) mutable {
    [&]<size_t... I>(std::index_sequence<I...>) { function(given[I]...); }
    (std::index_sequence_for<Inputs...>());
  };
  const RecomputedPart part(again, {inputs...}, std::move(buffers));
  return function(inputs...);
}

}  // namespace detail

// Returns function(inputs...), which may be of any type: a tensor, a tuple or vector of them. Backward calls
// a copy of the function, so it must be copyable, and what it refers to must live until then: capture `this`,
// and anything else by value. The function must do the same again: it depends on its inputs, on parameters
// that nobody changes before backward, and on what it draws. Tensors that it captures are kept in memory:
// pass activations as inputs.
//
// module: holds the layers that the function calls. Its buffers are as after the first run when the second
// one is over, so that running averages of batch norms are updated once, unlike with torch.
//
// backward() throws UsageError when the second run saves other tensors than the first (their number, shape,
// dtype or device), when a tensor that backward needs was changed in place after it was saved, and when the
// function itself runs a backward pass through what it has computed. It throws torch's error when an input
// was changed in place, by the function, too; and what the function throws.
template <class Function, std::same_as<torch::Tensor>... Inputs>
auto recompute(const torch::nn::Module& module, Function function, const Inputs&... inputs) {
  if (!torch::GradMode::is_enabled()) return function(inputs...);
  return detail::recompute_keeping(module.buffers(), std::move(function), inputs...);
}

// The same for a whole module, which may be a holder such as torch::nn::Sequential, or a shared_ptr.
template <ModulePointer Holder, std::same_as<torch::Tensor>... Inputs>
auto recompute(const Holder& holder, const Inputs&... inputs) {
  auto forward = [holder = holder](const Inputs&... given) mutable { return holder->forward(given...); };
  return recompute(static_cast<const torch::nn::Module&>(*holder), std::move(forward), inputs...);
}

// The same for a function that changes no buffers: those of batch norms would be updated twice.
template <class Function, std::same_as<torch::Tensor>... Inputs>
requires(!ModulePointer<Function> &&
         std::invocable<Function&, const Inputs&...>) auto recompute(Function function,
                                                                     const Inputs&... inputs) {
  if (!torch::GradMode::is_enabled()) return function(inputs...);
  return detail::recompute_keeping({}, std::move(function), inputs...);
}

}  // namespace lockstep
