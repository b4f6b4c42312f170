// Options of the optimizer of a training run.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/support/choices.h>

namespace at {
class Tensor;
}
namespace torch::optim {
class Optimizer;
}

namespace lockstep {

enum class OptimizerKind { kSgd, kAdam, kAdamW };

inline constexpr Choice<OptimizerKind> kOptimizerNames[] = {
    {"sgd", OptimizerKind::kSgd}, {"adam", OptimizerKind::kAdam}, {"adamw", OptimizerKind::kAdamW}};

// Settings that some parameters have for themselves. All with the same values are a group.
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

// Returns an optimizer of torch::optim with these parameters, the trained ones in the order of registration.
//
//   options.replica.optimizer.factory = [](std::vector<at::Tensor> params) {
//     return std::make_unique<torch::optim::RMSprop>(params, torch::optim::RMSpropOptions(1e-3).alpha(.9));
//   };
//   options.lr.lr = 1e-3;
//
// The rate of each step is TrainerOptions::lr's. The optimizer's own rate counts only beside those of its
// parameter groups: a group with twice the optimizer's rate takes twice the schedule's. The optimizer has all
// parameters, and keeps its state. States hold that of SGD, Adam, AdamW, RMSprop and Adagrad by torch's
// names, "square_avg.NAME"; another optimizer trains, but Trainer::state() and load() refuse it. LBFGS, which
// needs a closure, is refused. Steps are not captured as CUDA graphs.
//
// Called in each replica's thread when the Trainer is built, loads a state, or follows a change of
// requires_grad; parameters that stay trained keep their state then. It must make the same optimizer for all
// replicas: its type and groups are compared, its other options are not.
using OptimizerFactory =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> params)>;

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  double momentum = 0;      // sgd only
  bool nesterov = false;    // sgd only; requires momentum
  double weight_decay = 0;  // sgd, adam: L2, added to the gradient; adamw: decoupled
  double beta1 = .9;        // adam and adamw only
  double beta2 = .999;      // adam and adamw only
  double epsilon = 1e-8;    // adam and adamw only
  GroupOf group = nullptr;  // empty: all parameters are one group
  // Makes the optimizer instead, and sets all of the above. Empty: `kind` is the optimizer.
  OptimizerFactory factory = nullptr;
};

}  // namespace lockstep
