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
  const auto& parts = sync_.parts();
  order_ = std::make_shared<const FlatOrder>(FlatOrder{.params = sync_.parameters(),
                                                       .names = sync_.names(),
                                                       .parts = parts,
                                                       .endpoint = parts.whole() ? nullptr : &endpoint_});
  gradients_.clear();
  for (size_t b = 0; b < parts.count(); ++b) gradients_.push_back(sync_.own_gradients(b));
  optimizer_->hold(trained_parameters());
  if (average_) average_->hold(order_, params_.flat);
  if (!options_.optimizer.group && !options_.optimizer.factory) return;
  agree(endpoint_, "parameter groups", optimizer_->lines(),
        "the function that gives parameters their groups, or makes the optimizer, must do so alike for all");
}

TrainedParameters Replica::trained_parameters() {
  const auto groups = groups_of(options_.optimizer, order_->names, order_->params);
  TrainedParameters trained{
      .order = order_,
      .groups = groups,
      .ranges = flat_ranges(*order_, groups,
                            {.params = params_.flat,
                             .grads = gradients_,
                             // Rounded when all of a bucket is there.
                             .bf16 = shares_updates() ? torch::Tensor() : bf16_weights_.flat})};
  if (shares_updates() && !fetches_later()) trained.updated = [this](size_t bucket) { fetch(bucket); };
  return trained;
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
  if (endpoint_.device().is_cpu()) return;
  // Gradients stay in bfloat16, as the layers compute them, until they are added up in float.
  for (const auto& param : sync_.parameters()) param.set_grad_dtype(std::nullopt);
}

void Replica::update() {
  const auto in_trace = span("update");
  auto* const others = shares_updates() ? &endpoint_ : nullptr;
  if (!loss_scale_ || loss_scale_->unscale(gradients_, others)) update_parameters();
  if (others && options_.sync.shard == Shard::kOptimizer) {
    sync_.flat_gradients().zero_();  // also what other ranks own
  }
  number_.add_(1);
  wait_for_device();
}

void Replica::update_parameters() {
  if (options_.optimizer.factory) sync_.restore_views();  // torch's optimizers read each .grad
  optimizer_->step(options_.clip_norm > 0 ? clip_factor() : torch::Tensor());
  finish_fetches();
  if (average_) average_->update();
}

torch::Tensor Replica::clip_factor() {
  const auto sums =
      shares_updates() ? block_sums_of_parts(gradients_, order_->parts, endpoint_) : block_sums(gradients_);
  return clip_scale(sums, options_.clip_norm).to(params_.flat.scalar_type());
}

// While the next bucket is updated this rank's part of this one goes to the others, and theirs come.
void Replica::fetch(size_t bucket) {
  const auto all = order_->parts.all_of(bucket);
  fetches_.push_back(
      endpoint_.gather_parts(params_.flat.slice(0, all.begin, all.end), order_->parts.bounds(bucket)));
}

// After an update without fetches.
void Replica::fetch_all() {
  if (!fetches_later()) return;
  for (size_t b = 0; b < order_->parts.count(); ++b) fetch(b);
  finish_fetches();
}

void Replica::finish_fetches() {
  const torch::NoGradGuard no_grad;
  for (size_t b = 0; b < fetches_.size(); ++b) {
    fetches_[b].wait();
    if (!bf16_weights_.flat.defined()) continue;
    const auto all = order_->parts.all_of(b);
    bf16_weights_.flat.slice(0, all.begin, all.end).copy_(params_.flat.slice(0, all.begin, all.end));
  }
  fetches_.clear();
}

std::vector<NamedTensor> Replica::average() const {
  return average_ ? average_->tensors() : std::vector<NamedTensor>();
}

std::vector<NamedTensor> Replica::average_copies(const TensorAllocator* memory) const {
  return average_ ? average_->host_copies(memory) : std::vector<NamedTensor>();
}

std::unique_ptr<AveragesInPlace> Replica::put_average_in_place() {
  if (!average_ || !average_->averages()) return nullptr;
  return std::make_unique<AveragesInPlace>(params_.flat, *average_->averages(), bf16_weights_.flat);
}

}  // namespace lockstep
