// One optimizer step over a flat buffer of parameters: one fused pass whatever the number of tensors.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include <lockstep/support/choices.h>

namespace lockstep {

enum class OptimizerKind { kSgd, kAdamW };

inline constexpr Choice<OptimizerKind> kOptimizerNames[] = {{"sgd", OptimizerKind::kSgd},
                                                            {"adamw", OptimizerKind::kAdamW}};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  double momentum = 0;  // sgd alone, as nesterov
  bool nesterov = false;
  double weight_decay = 0;  // sgd: L2, added to the gradient; adamw: decoupled
  double beta1 = .9;        // adamw alone, as beta2 and epsilon
  double beta2 = .999;
  double epsilon = 1e-8;
};

// The very updates of torch::optim::SGD and AdamW, computed by torch's fused kernels. Not copied, used from
// one thread.
class FlatOptimizer {
 public:
  explicit FlatOptimizer(const OptimizerOptions& options) : options_(options) {}

  // params and grads: (n), alike, floating point. Changes params only.
  void step(torch::Tensor params, torch::Tensor grads, double lr);

 private:
  void sgd(torch::Tensor& params, torch::Tensor& grads, double lr);
  void adamw(torch::Tensor& params, torch::Tensor& grads, double lr);

  const OptimizerOptions options_;
  // (n), zeros at first; undefined where the method has none
  torch::Tensor first_moment_;  // sgd: the momentum buffer
  torch::Tensor second_moment_;
  torch::Tensor steps_;  // () float, adamw: steps taken
};

// Scales grads (n) so that their Euclidean norm is at most max_norm (torch.nn.utils.clip_grad_norm_). The
// host does not wait for the norm.
void clip_by_global_norm(torch::Tensor grads, double max_norm);

}  // namespace lockstep
