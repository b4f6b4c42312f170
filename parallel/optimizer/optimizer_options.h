// Options of the optimizer of a training run.
#pragma once

#include <lockstep/support/choices.h>

namespace lockstep {

enum class OptimizerKind { kSgd, kAdamW };

inline constexpr Choice<OptimizerKind> kOptimizerNames[] = {{"sgd", OptimizerKind::kSgd},
                                                            {"adamw", OptimizerKind::kAdamW}};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  double momentum = 0;      // sgd only
  bool nesterov = false;    // sgd only; requires momentum
  double weight_decay = 0;  // sgd: L2, added to the gradient; adamw: decoupled
  double beta1 = .9;        // adamw only
  double beta2 = .999;      // adamw only
  double epsilon = 1e-8;    // adamw only
};

}  // namespace lockstep
