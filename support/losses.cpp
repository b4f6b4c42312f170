#include <lockstep/support/losses.h>

#include <ATen/core/Reduction.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// (n) int64; y itself if it is that.
torch::Tensor class_numbers(const torch::Tensor& y) {
  if (y.scalar_type() == torch::kInt64) return y;
  if (!at::isIntegralType(y.scalar_type(), /*includeBool=*/false)) {
    throw DataError(fmt::format("the labels are {}, classes are integers", toString(y.scalar_type())),
                    "give int64 labels; a model with other targets has another loss");
  }
  return y.to(torch::kInt64);
}

// Throws DataError for shapes that do not fit, or labels that are no classes. Reads labels on a CPU alone: a
// GPU would have to be waited for, and is lost after such an error.
void require_fitting(const torch::Tensor& logits, const torch::Tensor& y) {
  if (logits.dim() != 2 || y.dim() != 1 || y.size(0) != logits.size(0)) {
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
                  label == kIgnoredToken
                      ? "torch's ignore_index is not supported: leave rows without a class out of the data"
                      : "labels count from 0, and the last layer has one output per class");
}

// No row is left out: torch refuses each label that is no class.
constexpr auto kNoLabel = std::numeric_limits<int64_t>::min();

// In float32 or float64.
torch::Tensor wide(const torch::Tensor& output) {
  return output.scalar_type() == torch::kFloat64 ? output : output.to(torch::kFloat32);
}

Outcome class_outcome(const torch::Tensor& output, const torch::Tensor& y, bool with_top5) {
  const auto classes = class_numbers(y);
  const auto logits = wide(output);
  if (logits.dim() != 2) require_fitting(logits, classes);  // torch takes (n, classes, ...), too
  Outcome outcome;
  try {
    outcome.loss = torch::cross_entropy_loss(logits, classes, /*weight=*/{}, at::Reduction::Sum, kNoLabel);
    const torch::NoGradGuard no_grad;
    if (!with_top5) {
      outcome.metrics = {(logits.argmax(1) == classes).sum()};
      return outcome;
    }
    const auto own = logits.gather(1, classes.unsqueeze(1));  // (n, 1)
    outcome.metrics = {(logits.argmax(1) == classes).sum(), ((logits > own).sum(1) < 5).sum()};
  } catch (const c10::Error&) {
    require_fitting(logits, classes);
    throw;
  }
  return outcome;
}

// Throws DataError unless the targets have the shape of the outputs. Others might be broadcast, as (n) to (n,
// 1).
void require_same_shape(const torch::Tensor& output, const torch::Tensor& target) {
  if (output.sizes() == target.sizes()) return;
  throw DataError(fmt::format("targets of shape [{}] for outputs of shape [{}]",
                              fmt::join(target.sizes(), ", "), fmt::join(output.sizes(), ", ")),
                  target.numel() == output.numel()
                      ? "give both one shape, such as by unsqueeze(1) or squeeze(1)"
                      : "a row of the targets has one number for each of the output's");
}

double numbers_per_row(const torch::Tensor& output) {
  return static_cast<double>(c10::multiply_integers(output.sizes().slice(1)));
}

// The sum over the rows of the mean absolute error of each.
torch::Tensor absolute_errors(const torch::Tensor& output, const torch::Tensor& target) {
  const torch::NoGradGuard no_grad;
  return (output - target).abs().sum() / numbers_per_row(output);
}

// Throws DataError for a token on a CPU that is neither in the vocabulary nor ignored. length: of a row.
void require_tokens(const torch::Tensor& tokens, int64_t length, int64_t vocabulary, int64_t ignored) {
  if (!tokens.is_cpu()) return;
  const auto outside = tokens.lt(0).logical_or(tokens.ge(vocabulary)).logical_and(tokens.ne(ignored));
  if (!outside.any().item<bool>()) return;
  const auto first = outside.to(torch::kUInt8).argmax().item<int64_t>();
  throw DataError(fmt::format("row {} has token {}, but the logits have a vocabulary of {}", first / length,
                              tokens[first].item<int64_t>(), vocabulary),
                  fmt::format("tokens count from 0; {} is not counted", ignored));
}

Outcome token_outcome(const torch::Tensor& output, const torch::Tensor& target, int64_t ignored) {
  if (output.dim() != 3 || target.sizes() != output.sizes().slice(0, 2)) {
    throw DataError(fmt::format("targets of shape [{}] for logits of shape [{}]",
                                fmt::join(target.sizes(), ", "), fmt::join(output.sizes(), ", ")),
                    "logits are (n, tokens, vocabulary), targets (n, tokens)");
  }
  const auto logits = wide(output).flatten(0, 1);
  const auto tokens = class_numbers(target).flatten();
  Outcome outcome;
  try {
    outcome.loss = torch::cross_entropy_loss(logits, tokens, /*weight=*/{}, at::Reduction::Sum, ignored);
  } catch (const c10::Error&) {
    require_tokens(tokens, output.size(1), output.size(2), ignored);
    throw;
  }
  const torch::NoGradGuard no_grad;
  const auto count = (tokens != ignored).sum();
  const auto right = (logits.argmax(1) == tokens).logical_and(tokens != ignored).sum();
  outcome.metrics = {{outcome.loss.detach(), count}, {right, count}};
  return outcome;
}

}  // namespace

OutputLoss classification(std::optional<int64_t> classes) {
  const bool with_top5 = classes.value_or(5) >= 5;
  OutputLoss loss{.loss_sum =
                      [with_top5](const torch::Tensor& output, const torch::Tensor& target) {
                        return class_outcome(output, target, with_top5);
                      },
                  .metrics = {{.name = "top1", .type = MetricType::kCount}}};
  if (with_top5) loss.metrics.push_back({.name = "top5", .type = MetricType::kCount});
  return loss;
}

OutputLoss mse() {
  return {
      .loss_sum =
          [](const torch::Tensor& output, const torch::Tensor& target) {
            require_same_shape(output, target);
            const auto found = wide(output), wanted = target.to(found.scalar_type());
            Outcome outcome{.loss = (found - wanted).square().sum() / numbers_per_row(found)};
            outcome.metrics = {absolute_errors(found, wanted), outcome.loss.detach()};
            return outcome;
          },
      .metrics = {{.name = "mae"}, {.name = "rmse", .finish = [](double mean) { return std::sqrt(mean); }}}};
}

OutputLoss smooth_l1(double beta) {
  if (!(beta > 0)) {
    throw UsageError(fmt::format("a smooth L1 loss with beta {}", beta), "beta is above 0; torch's is 1");
  }
  return {.loss_sum =
              [beta](const torch::Tensor& output, const torch::Tensor& target) {
                require_same_shape(output, target);
                const auto found = wide(output), wanted = target.to(found.scalar_type());
                const auto sum = torch::smooth_l1_loss(found, wanted, at::Reduction::Sum, beta);
                return Outcome{sum / numbers_per_row(found), {absolute_errors(found, wanted)}};
              },
          .metrics = {{.name = "mae"}}};
}

OutputLoss token_cross_entropy(int64_t ignored) {
  return {
      .loss_sum = [ignored](const torch::Tensor& output,
                            const torch::Tensor& target) { return token_outcome(output, target, ignored); },
      .metrics = {{.name = "perplexity",
                   .own_weight = true,
                   .finish = [](double mean) { return std::exp(mean); }},
                  {.name = "top1", .type = MetricType::kCount, .own_weight = true}},
      .weight = [ignored](const torch::Tensor& target) { return (target != ignored).sum(); }};
}

Outcome classification_outcome(const torch::Tensor& logits, const torch::Tensor& y) {
  return class_outcome(logits, y, /*with_top5=*/true);
}

}  // namespace lockstep
