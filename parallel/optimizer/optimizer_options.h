// Options of the optimizer of a training run.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <lockstep/support/choices.h>

namespace at {
class Tensor;
}

namespace lockstep {

enum class OptimizerKind { kSgd, kAdam, kAdamW };

inline constexpr Choice<OptimizerKind> kOptimizerNames[] = {
    {"sgd", OptimizerKind::kSgd}, {"adam", OptimizerKind::kAdam}, {"adamw", OptimizerKind::kAdamW}};

// What some parameters have for themselves. All with the same values are a group.
struct GroupOptions {
  double lr_factor = 1;                               // on the schedule's learning rate; 0: they do not move
  std::optional<double> weight_decay = std::nullopt;  // empty: OptimizerOptions::weight_decay

  bool operator==(const GroupOptions&) const = default;
};

// Returns the options of a trained parameter. name: in the module, "conv1.weight"; of tied weights the first
// one. param: the module's own; do not change it.
//
//   options.replica.optimizer.group = [](const std::string& name, const at::Tensor& param) -> GroupOptions {
//     if (param.dim() < 2) return {.weight_decay = 0};  // norms and biases
//     if (name.starts_with("head.")) return {.lr_factor = 10};
//     return {};
//   };
//
// Called once per parameter in each replica's thread, when the Trainer is built, and again when requires_grad
// of a parameter has changed. It must give all replicas the same; otherwise all get a UsageError.
using GroupOf = std::function<GroupOptions(const std::string& name, const at::Tensor& param)>;

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  double momentum = 0;      // sgd only
  bool nesterov = false;    // sgd only; requires momentum
  double weight_decay = 0;  // sgd, adam: L2, added to the gradient; adamw: decoupled
  double beta1 = .9;        // adam and adamw only
  double beta2 = .999;      // adam and adamw only
  double epsilon = 1e-8;    // adam and adamw only
  GroupOf group = nullptr;  // empty: all parameters are one group
};

}  // namespace lockstep
