// The functions of Trainer on the loss scale of fp16.
#include <fmt/format.h>

#include <optional>

#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/loss_scale.h>
#include <lockstep/parallel/training/replica.h>
#include <lockstep/support/error.h>

namespace lockstep {

std::optional<LossScaleState> Trainer::loss_scale() {
  const auto* scale = replicas_.front()->loss_scale();
  if (!scale) return std::nullopt;
  wait_for_steps(0);
  return scale->state();
}

void Trainer::require_updates() {
  const auto scale = loss_scale();
  if (!scale || scale->updates > 0 || scale->steps == 0) return;
  throw NumericError(
      fmt::format(
          "nothing was trained: every step that was taken was skipped, since a gradient was not finite "
          "in fp16 (loss scale {:.6g})",
          scale->scale),
      "train for more steps, in which the scale falls further, or use " +
          NamedOption{"precision", "bf16", "Precision::kBf16"});
}

// Every process has the same scale after the same step, since no step is in flight then.
void Trainer::require_useful_scale() const {
  const auto* scale = replicas_.front()->loss_scale();
  if (!scale || scale->state().scale >= kLeastLossScale) return;
  throw NumericError(
      fmt::format("a gradient of step {} was not finite with a loss scale of {:.2g} either: the step was "
                  "skipped, like those before it",
                  steps_taken_, 2 * scale->state().scale),
      "no scale helps where a number of the model is NaN or above 65,504, the largest of fp16; use " +
          NamedOption{"precision", "bf16", "Precision::kBf16"} + ", which has the range of fp32");
}

}  // namespace lockstep
