#include <lockstep/support/classification.h>

#include <ATen/core/Reduction.h>
#include <torch/types.h>

namespace lockstep {

Outcome classification_outcome(const torch::Tensor& logits, const torch::Tensor& y) {
  // In float32 or float64: a sum of bfloat16 losses would keep three digits.
  const auto wide = logits.scalar_type() == torch::kFloat64 ? logits : logits.to(torch::kFloat32);
  Outcome outcome;
  outcome.loss = torch::cross_entropy_loss(wide, y, /*weight=*/{}, at::Reduction::Sum);
  const torch::NoGradGuard no_grad;
  const auto own = wide.gather(1, y.unsqueeze(1));  // (n, 1)
  outcome.top1 = (wide.argmax(1) == y).sum();
  outcome.top5 = ((wide > own).sum(1) < 5).sum();
  return outcome;
}

torch::Tensor sums_of(const Outcome& outcome) {
  const torch::NoGradGuard no_grad;
  return torch::stack(
      {outcome.loss.to(torch::kFloat64), outcome.top1.to(torch::kFloat64), outcome.top5.to(torch::kFloat64)});
}

}  // namespace lockstep
