#include <lockstep/support/classification.h>

#include <ATen/core/Reduction.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// (n) int64; y itself if it is that.
torch::Tensor class_numbers(const torch::Tensor& y) {
  if (y.scalar_type() == torch::kInt64) return y;
  if (!at::isIntegralType(y.scalar_type(), /*includeBool=*/false)) {
    throw DataError(fmt::format("the labels are {}, classes are integers", toString(y.scalar_type())),
                    "give int64 labels; a model with other targets has a loss_sum of its own");
  }
  return y.to(torch::kInt64);
}

constexpr int64_t kIgnored = -100;  // torch's ignore_index

// Throws DataError if these are why torch has thrown. Reads labels on a CPU alone: a GPU would have to be
// waited for, and is lost after such an error.
void require_fitting(const torch::Tensor& logits, const torch::Tensor& y) {
  if (logits.dim() < 2 || y.dim() + 1 != logits.dim() || y.size(0) != logits.size(0)) {
    throw DataError(fmt::format("labels of shape [{}] for logits of shape [{}]", fmt::join(y.sizes(), ", "),
                                fmt::join(logits.sizes(), ", ")),
                    "logits are (n, classes), labels (n)");
  }
  if (!y.is_cpu()) return;
  const auto classes = logits.size(1);
  const auto outside = y.lt(0).logical_or(y.ge(classes));
  if (!outside.any().item<bool>()) return;
  const auto label = y.masked_select(outside)[0].item<int64_t>();
  const auto row = outside.nonzero()[0][0].item<int64_t>();
  throw DataError(fmt::format("row {} of {} has label {}, but the logits have {} classes", row, y.size(0),
                              label, classes),
                  label == kIgnored
                      ? "torch's ignore_index is not supported: leave rows without a class out of the data"
                      : "labels count from 0, and the last layer has one output per class");
}

}  // namespace

Outcome classification_outcome(const torch::Tensor& logits, const torch::Tensor& y) {
  const auto classes = class_numbers(y);
  // In float32 or float64: a sum of bfloat16 losses would keep three digits.
  const auto wide = logits.scalar_type() == torch::kFloat64 ? logits : logits.to(torch::kFloat32);
  Outcome outcome;
  try {
    outcome.loss = torch::cross_entropy_loss(wide, classes, /*weight=*/{}, at::Reduction::Sum);
    const torch::NoGradGuard no_grad;
    const auto own = wide.gather(1, classes.unsqueeze(1));  // (n, 1)
    outcome.top1 = (wide.argmax(1) == classes).sum();
    outcome.top5 = ((wide > own).sum(1) < 5).sum();
  } catch (const c10::Error&) {
    require_fitting(wide, classes);
    throw;
  }
  return outcome;
}

torch::Tensor sums_of(const Outcome& outcome) {
  const torch::NoGradGuard no_grad;
  return torch::stack(
      {outcome.loss.to(torch::kFloat64), outcome.top1.to(torch::kFloat64), outcome.top5.to(torch::kFloat64)});
}

}  // namespace lockstep
