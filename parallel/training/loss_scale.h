// The factor on the loss of a model that computes in fp16, whose gradients would otherwise become 0.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>

#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/train_state.h>

namespace lockstep {

class Endpoint;

// A smaller scale is none: where gradients that are this much smaller are not finite, no scale helps.
inline constexpr double kLeastLossScale = 1. / 65536;

// Returns the state after a step whose gradients were finite or not, as torch.amp.GradScaler.update() counts
// it: halved, or doubled after options.growth_interval finite ones in a row.
LossScaleState after_step(const LossScaleOptions& options, LossScaleState state, bool finite);

// A replica's. All replicas have the same scale, since they have the same sums of gradients. Not
// thread-safe.
class LossScale {
 public:
  LossScale(const LossScaleOptions& options, torch::Device device);

  // The loss times the scale, in float, whatever its type: in fp16 the product would be infinite.
  torch::Tensor scaled(const torch::Tensor& loss) const { return loss.to(torch::kFloat32) * state_.scale; }

  // gradients: of the scaled loss, float, summed over the replicas. Divides them by the scale and counts the
  // step. Returns false if one of them is NaN or infinite: then all are zero, and the step is to be skipped.
  // Waits for a GPU. others: of ranks that have other gradients; then it is a collective, and one of theirs
  // counts, too.
  bool unscale(std::span<const torch::Tensor> gradients, Endpoint* others = nullptr);

  const LossScaleState& state() const { return state_; }
  // Rounds the scale to float. Forgets the skipped steps.
  void set_state(const LossScaleState& state);

  // Returns the number of skipped steps since the last call.
  int64_t take_skipped();

 private:
  const LossScaleOptions options_;
  LossScaleState state_;
  int64_t skipped_ = 0;
  torch::Tensor inverse_, not_finite_;  // () float on the device: of the scale; above 0 if one is not
};

}  // namespace lockstep
