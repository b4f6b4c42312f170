// One optimizer step over a flat buffer of parameters: one fused pass whatever the number of tensors. On
// processors and for AdamW torch's fused kernels compute it, for SGD on a GPU ours (flat_sgd.h).
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

// The very updates of torch::optim::SGD and AdamW. Not copied, used from one thread. On a GPU all that
// changes from step to step is read on the device, so that a step may be recorded into a graph and replayed.
class FlatOptimizer {
 public:
  // device: where parameters and gradients are.
  FlatOptimizer(const OptimizerOptions& options, torch::Device device);

  // Of the next steps. On a GPU it queues a copy where the rate has changed.
  void set_lr(double lr);

  // (n) bfloat16, on the same device: after each step it is the parameters, rounded.
  void keep_bf16_weights(torch::Tensor copy) { bf16_weights_ = std::move(copy); }

  // params and grads: (n), alike, floating point. scale: () of their dtype, the gradients are multiplied by
  // it first; undefined: 1. Leaves the gradients zero, for the next backward pass to add to.
  void step(torch::Tensor params, torch::Tensor grads, const torch::Tensor& scale = {});

 private:
  void sgd(torch::Tensor& params, torch::Tensor& grads);
  void sgd_on_gpu(torch::Tensor& params, torch::Tensor& grads, const torch::Tensor& scale);
  void adamw(torch::Tensor& params, torch::Tensor& grads);

  const OptimizerOptions options_;
  const torch::Device device_;
  double lr_ = 0;
  torch::Tensor bf16_weights_;  // of the parameters, in bfloat16; undefined: none
  torch::Tensor device_lr_;     // () double, the same on the GPU; undefined on a CPU
  // (n), zeros at first; undefined where the method has none
  torch::Tensor first_moment_;  // sgd: the momentum buffer
  torch::Tensor second_moment_;
  torch::Tensor steps_;  // () float, adamw: steps taken
};

// What grads (n) must be multiplied by for a Euclidean norm of at most max_norm, () of their dtype: the same
// as torch.nn.utils.clip_grad_norm_ does. The host does not wait for the norm.
torch::Tensor clip_scale(const torch::Tensor& grads, double max_norm);

}  // namespace lockstep
