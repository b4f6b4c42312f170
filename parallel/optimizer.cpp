#include <lockstep/parallel/optimizer.h>

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/norm.h>

namespace lockstep {

void FlatOptimizer::step(torch::Tensor params, torch::Tensor grads, double lr) {
  const torch::NoGradGuard no_grad;
  if (params.numel() == 0) return;
  options_.kind == OptimizerKind::kSgd ? sgd(params, grads, lr) : adamw(params, grads, lr);
}

void FlatOptimizer::sgd(torch::Tensor& params, torch::Tensor& grads, double lr) {
  std::vector<torch::Tensor> momentum;
  if (options_.momentum != 0) {
    // Zeros, then m = momentum m + g: the first step's m is g, as torch's is.
    if (!first_moment_.defined()) first_moment_ = torch::zeros_like(params);
    momentum.push_back(first_moment_);
  }
  at::_fused_sgd_({params}, {grads}, momentum, options_.weight_decay, options_.momentum, lr,
                  /*dampening=*/0, options_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
}

void FlatOptimizer::adamw(torch::Tensor& params, torch::Tensor& grads, double lr) {
  if (!steps_.defined()) {
    first_moment_ = torch::zeros_like(params);
    second_moment_ = torch::zeros_like(params);
    steps_ = torch::zeros({}, torch::TensorOptions(torch::kFloat32).device(params.device()));
  }
  steps_.add_(1);
  at::_fused_adamw_({params}, {grads}, {first_moment_}, {second_moment_}, /*max_exp_avg_sqs=*/{}, {steps_},
                    lr, options_.beta1, options_.beta2, options_.weight_decay, options_.epsilon,
                    /*amsgrad=*/false, /*maximize=*/false);
}

void clip_by_global_norm(torch::Tensor grads, double max_norm) {
  const torch::NoGradGuard no_grad;
  const auto norm = grads.norm();
  // The small term is torch's, so that results are the same.
  grads.mul_((max_norm / (norm + 1e-6)).clamp_max(1));
}

}  // namespace lockstep
