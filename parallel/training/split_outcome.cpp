#include <lockstep/parallel/training/split_outcome.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace lockstep {
namespace {

// How far a sum of numbers of this type may be off. A model in double may compute a part in float32, such as
// an RMS norm: the type of its loss does not tell.
double rounding_of(torch::ScalarType type) {
  return type == torch::kBFloat16 || type == torch::kFloat16 ? 2e-2 : 1e-5;
}

constexpr double kZero = 1e-12;  // sums that cancel leave rounding

std::string difference_text(const std::string& name, int64_t rows, double whole, double parts) {
  auto values = std::pair(number_text(whole), number_text(parts));
  if (values.first == values.second) values = {number_text(whole, 12), number_text(parts, 12)};
  return fmt::format("{} of {} rows is {}, of their two parts together {}", name, rows, values.first,
                     values.second);
}

const char* advice_on(ShardSum::Kind kind, bool is_mean) {
  switch (kind) {
    case ShardSum::Kind::kLoss:
      return is_mean ? "a loss is the sum over the rows, which Trainer divides by the rows of the whole "
                       "batch: take at::Reduction::Sum, or multiply the mean by in.rows(). A mean over "
                       "tokens or pixels is a weighted one: give its sum, and the weight by .weight()"
                     : "a loss is a sum over the rows, none of which may depend on the others. What is "
                       "added once per batch, such as a regulariser, is multiplied by in.rows()";
    case ShardSum::Kind::kMetric:
      return "a metric is a sum over the rows, which is divided by their number; or, with own_weight, by "
             "the sum that the outcome gives beside it";
    case ShardSum::Kind::kWeight:
      return "a weight is a sum over the rows of the batch, such as in[\"mask\"].sum()";
  }
  return "";
}

std::optional<SplitDifference> difference_of_sum(const SplitOutcome& split, size_t i) {
  const auto& whole = split.whole.sums[i];
  double sum = 0, size = std::abs(whole.value);
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto& part : split.parts) {
    const double value = part.sums[i].value;
    sum += value;
    size += std::abs(value);
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const double rounding = whole.rounding * size + kZero;
  if (std::abs(whole.value - sum) <= rounding) return std::nullopt;
  auto text = difference_text(whole.name, split.whole.rows, whole.value, sum);
  if (!std::isfinite(whole.value)) return SplitDifference{text, "give rows for which it is finite"};
  // A mean, weighted or not, lies between those of the parts.
  const bool is_mean = whole.value >= low - rounding && whole.value <= high + rounding;
  if (is_mean) text += ": it seems to be a mean";
  return SplitDifference{text, advice_on(whole.kind, is_mean)};
}

double largest_of(const Params& gradients) {
  double largest = 0;
  for (const auto& gradient : gradients) {
    if (gradient.numel() > 0) largest = std::max(largest, gradient.abs().max().item<double>());
  }
  return largest;
}

// Compared with the largest gradient of all parameters: one that is zero but for rounding says nothing. Those
// of the parts count, too: they may cancel in the whole.
std::optional<SplitDifference> difference_of_gradients(const SplitOutcome& split,
                                                       const std::vector<NamedTensor>& trained) {
  double largest = largest_of(split.whole.gradients);
  for (const auto& part : split.parts) largest = std::max(largest, largest_of(part.gradients));
  for (size_t p = 0; p < trained.size(); ++p) {
    const auto whole = split.whole.gradients[p].flatten();
    if (whole.numel() == 0) continue;
    auto sum = torch::zeros_like(whole);
    for (const auto& part : split.parts) sum += part.gradients[p].flatten();
    const auto [distance, at] = (whole - sum).abs().max(0);  // NaN counts as the maximum
    if (distance.item<double>() <= split.whole.sums.front().rounding * largest + kZero) continue;
    const auto i = at.item<int64_t>();
    return SplitDifference{
        difference_text("the loss's gradient in " + trained[p].name, split.whole.rows,
                        whole[i].item<double>(), sum[i].item<double>()),
        "the loss does not depend on the split, but its backward pass does: look for hooks, "
        "and for autograd functions of your own, that know the number of rows"};
  }
  return std::nullopt;
}

}  // namespace

std::string number_text(double value, int digits) {
  return std::isnan(value) ? "nan" : fmt::format("{:.{}g}", value, digits);
}

void ShardOutcome::add(ShardSum::Kind kind, const std::string& name, const torch::Tensor& sum) {
  sums.push_back({.kind = kind,
                  .name = name,
                  .value = sum.detach().to(torch::kFloat64).item<double>(),
                  .rounding = rounding_of(sum.scalar_type())});
}

std::optional<SplitDifference> difference_of(const SplitOutcome& split,
                                             const std::vector<NamedTensor>& trained) {
  for (size_t i = 0; i < split.whole.sums.size(); ++i) {
    if (auto found = difference_of_sum(split, i)) return found;
  }
  return difference_of_gradients(split, trained);
}

}  // namespace lockstep
