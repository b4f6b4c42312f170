#include <lockstep/parallel/training/loss_scale.h>

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>

#include <cmath>
#include <utility>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

LossScaleState after_step(const LossScaleOptions& options, LossScaleState state, bool finite) {
  ++state.steps;
  if (!finite) {
    state.scale /= 2;
    state.good_steps = 0;
    return state;
  }
  ++state.updates;
  if (++state.good_steps < options.growth_interval) return state;
  state.good_steps = 0;
  // torch keeps it in float.
  if (std::isfinite(static_cast<float>(2 * state.scale))) state.scale *= 2;
  return state;
}

LossScale::LossScale(const LossScaleOptions& options, torch::Device device) : options_(options) {
  set_state({.scale = options.initial});
  const auto on_device = torch::TensorOptions(torch::kFloat32).device(device);
  inverse_ = torch::empty({}, on_device);
  not_finite_ = torch::empty({}, on_device);
}

bool LossScale::unscale(std::span<const torch::Tensor> gradients, Endpoint* others) {
  const torch::NoGradGuard no_grad;
  inverse_.fill_(1 / state_.scale);
  not_finite_.zero_();
  at::_amp_foreach_non_finite_check_and_unscale_(at::TensorList(gradients.data(), gradients.size()),
                                                 not_finite_, inverse_);
  if (others) others->allreduce_sum(not_finite_).wait();
  const bool finite = not_finite_.item<float>() == 0;
  state_ = after_step(options_, state_, finite);
  if (finite) return true;
  ++skipped_;
  for (auto gradient : gradients) gradient.zero_();
  return false;
}

void LossScale::set_state(const LossScaleState& state) {
  state_ = state;
  // As the kernels that multiply and divide by it have it.
  state_.scale = static_cast<float>(state.scale);
  skipped_ = 0;
}

int64_t LossScale::take_skipped() { return std::exchange(skipped_, 0); }

}  // namespace lockstep
