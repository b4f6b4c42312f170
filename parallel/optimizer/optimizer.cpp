#include <lockstep/parallel/optimizer/optimizer.h>

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <utility>

#include <lockstep/parallel/optimizer/flat_sgd.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/tensor_data.h>

namespace lockstep {

FlatOptimizer::FlatOptimizer(const OptimizerOptions& options, torch::Device device)
    : options_(options), device_(device) {
  if (!device.is_cpu()) device_lr_ = torch::zeros({}, torch::TensorOptions(torch::kFloat64).device(device));
}

void FlatOptimizer::set_lr(double lr) {
  if (lr == lr_) return;
  lr_ = lr;
  if (device_lr_.defined()) device_lr_.fill_(lr);
}

void FlatOptimizer::step(torch::Tensor params, torch::Tensor grads, const torch::Tensor& scale) {
  const torch::NoGradGuard no_grad;
  if (params.numel() == 0) return;
  make_kept(params);
  if (options_.kind == OptimizerKind::kSgd && !device_.is_cpu()) return sgd_on_gpu(params, grads, scale);
  if (scale.defined()) grads.mul_(scale);
  options_.kind == OptimizerKind::kSgd ? sgd(params, grads) : adamw(params, grads);
  grads.zero_();
  if (bf16_weights_.defined()) bf16_weights_.copy_(params);
}

void FlatOptimizer::make_kept(const torch::Tensor& params) {
  const bool adamw = options_.kind == OptimizerKind::kAdamW;
  if (first_moment_.defined() || (!adamw && options_.momentum == 0)) return;
  // Momentum starts from zeros: m = momentum m + g makes the first m equal to g, as in torch.
  first_moment_ = torch::zeros_like(params);
  if (!adamw) return;
  second_moment_ = torch::zeros_like(params);
  const auto counts = torch::zeros({static_cast<int64_t>(std::max<size_t>(parts_.size(), 1))},
                                   torch::TensorOptions(torch::kFloat32).device(params.device()));
  steps_ = parts_.empty() ? counts[0] : counts;
}

std::vector<NamedTensor> FlatOptimizer::kept(const torch::Tensor& params) {
  make_kept(params);
  if (!first_moment_.defined()) return {};
  if (options_.kind == OptimizerKind::kSgd) return {{"momentum_buffer", first_moment_}};
  return {{"exp_avg", first_moment_}, {"exp_avg_sq", second_moment_}, {"step", steps_}};
}

bool FlatOptimizer::count_steps_by_part(std::vector<int64_t> offsets) {
  const bool moves = steps_.defined() && offsets.empty() != parts_.empty();
  if (moves) steps_ = offsets.empty() ? steps_.max() : steps_.repeat({static_cast<int64_t>(offsets.size())});
  parts_ = std::move(offsets);
  return moves;
}

bool FlatOptimizer::counts_alike() const {
  return !steps_.defined() || steps_.eq(steps_.max()).all().item<bool>();
}

void FlatOptimizer::forget() {
  first_moment_.reset();
  second_moment_.reset();
  steps_.reset();
  parts_.clear();
}

void FlatOptimizer::sgd(torch::Tensor& params, torch::Tensor& grads) {
  std::vector<torch::Tensor> momentum;
  if (first_moment_.defined()) momentum.push_back(first_moment_);
  at::_fused_sgd_({params}, {grads}, momentum, options_.weight_decay, options_.momentum, lr_,
                  /*dampening=*/0, options_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
}

void FlatOptimizer::sgd_on_gpu(torch::Tensor& params, torch::Tensor& grads, const torch::Tensor& scale) {
  const c10::DeviceGuard guard(device_);
  const FlatSgdOptions options{
      .momentum = options_.momentum, .weight_decay = options_.weight_decay, .nesterov = options_.nesterov};
  const auto launch = [&]<class T>(T) {
    const FlatSgdBuffers<T> buffers{.params = data_or_null<T>(params),
                                    .grads = data_or_null<T>(grads),
                                    .momentum = data_or_null<T>(first_moment_),
                                    .bf16 = data_or_null<Bf16>(bf16_weights_),
                                    .size = params.numel()};
    flat_sgd(buffers, options, device_lr_.const_data_ptr<double>(), data_or_null<T>(scale),
             native_stream(device_));
  };
  params.scalar_type() == torch::kFloat64 ? launch(double{}) : launch(float{});
}

void FlatOptimizer::adamw(torch::Tensor& params, torch::Tensor& grads) {
  steps_.add_(1);
  const auto parts_of = [&](const torch::Tensor& buffer) {
    if (parts_.empty()) return std::vector<torch::Tensor>{buffer};
    std::vector<torch::Tensor> parts;
    int64_t end = buffer.numel();
    for (const auto begin : parts_) {
      parts.push_back(buffer.slice(0, begin, end));
      end = begin;
    }
    return parts;
  };
  const auto steps = parts_.empty() ? std::vector<torch::Tensor>{steps_} : steps_.unbind();
  const auto update = [&](const auto& lr) {
    at::_fused_adamw_(parts_of(params), parts_of(grads), parts_of(first_moment_), parts_of(second_moment_),
                      /*max_exp_avg_sqs=*/{}, steps, lr, options_.beta1, options_.beta2,
                      options_.weight_decay, options_.epsilon,
                      /*amsgrad=*/false,
                      /*maximize=*/false);
  };
  if (device_lr_.defined()) {
    update(device_lr_.to(torch::kFloat32));  // torch's kernel reads a float
  } else {
    update(lr_);
  }
}

}  // namespace lockstep
