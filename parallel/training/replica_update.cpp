// The functions of Replica that hold its parameters in flat buffers, and update them.
#include <exception>
#include <utility>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/optimizer/gradient_norm.h>
#include <lockstep/parallel/training/replica.h>

namespace lockstep {

// Moves what is trained into a flat buffer, and makes what works on it.
void Replica::hold_parameters() {
  params_ = flatten_parameters(sync_.parameters());
  held_ = HeldParameters(*model_.module, /*buffers_too=*/captured_.enabled());
  if (options_.precision == Precision::kBf16 && model_.use_bf16_weights) keep_bf16_weights();
  if (options_.invariant) micro_shards_.emplace(*model_.module, sync_.flat_gradients(), endpoint_);
  gradients_ = {sync_.flat_gradients()};
  optimizer_->hold(trained_parameters());
  if (average_) average_->hold(sync_.names(), sync_.parameters(), params_.flat);
  if (!options_.optimizer.group && !options_.optimizer.factory) return;
  agree(endpoint_, "parameter groups", optimizer_->lines(),
        "the function that gives parameters their groups, or makes the optimizer, must do so alike for all");
}

TrainedParameters Replica::trained_parameters() {
  const auto& names = sync_.names();
  const auto& params = sync_.parameters();
  return {.params = params,
          .names = names,
          .ranges = flat_ranges(
              params, groups_of(options_.optimizer, names, params),
              {.params = params_.flat, .grads = sync_.flat_gradients(), .bf16 = bf16_weights_.flat})};
}

// Keeps a bf16 copy of the weights that the optimizer rewrites with each update. Without it autocast converts
// the fp32 masters in every step. Keeps none if a parameter is frozen.
void Replica::keep_bf16_weights() {
  const bool some_are_frozen = sync_.parameters().size() != held_.size();
  if (some_are_frozen) {
    if (!std::exchange(bf16_weights_, {}).flat.defined()) return;
    return model_.use_bf16_weights({});
  }
  Params rounded;
  for (const auto& param : sync_.parameters()) rounded.push_back(param.detach().to(torch::kBFloat16));
  bf16_weights_ = flat_zeros_like(rounded);
  bf16_weights_.flat.copy_(params_.flat);
  model_.use_bf16_weights(bf16_weights_.views);
}

void Replica::update() {
  const auto in_trace = span("update");
  if (!loss_scale_ || loss_scale_->unscale(gradients_)) update_parameters();
  number_.add_(1);
  wait_for_device();
}

void Replica::update_parameters() {
  if (options_.optimizer.factory) sync_.restore_views();  // torch's optimizers read each .grad
  torch::Tensor scale;
  if (options_.clip_norm > 0) {
    scale = clip_scale(block_sums(gradients_), options_.clip_norm).to(params_.flat.scalar_type());
  }
  optimizer_->step(scale);
  if (average_) average_->update();
}

std::vector<NamedTensor> Replica::average() const {
  return average_ ? average_->tensors() : std::vector<NamedTensor>();
}

std::unique_ptr<AveragesInPlace> Replica::put_average_in_place() {
  if (!average_ || !average_->flat().defined()) return nullptr;
  return std::make_unique<AveragesInPlace>(params_.flat, average_->flat(), bf16_weights_.flat);
}

}  // namespace lockstep
