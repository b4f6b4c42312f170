#include <lockstep/support/losses.h>

#include <ATen/core/Reduction.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <lockstep/support/class_loss.h>
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

struct Outside {
  int64_t place = 0, label = 0;
};

// The first of these labels (n) that is neither a class nor `ignored`. Reads labels on a CPU alone: a GPU
// would have to be waited for, and is lost after such an error.
std::optional<Outside> first_outside(const torch::Tensor& labels, int64_t classes,
                                     std::optional<int64_t> ignored = {}) {
  if (!labels.is_cpu()) return std::nullopt;
  auto outside = labels.lt(0).logical_or_(labels.ge(classes));
  if (ignored) outside.logical_and_(labels.ne(*ignored));
  if (!outside.any().item<bool>()) return std::nullopt;
  const auto place = outside.to(torch::kUInt8).argmax().item<int64_t>();
  return Outside{place, labels[place].item<int64_t>()};
}

// Throws DataError for shapes that do not fit, or labels that are no classes.
void require_fitting(const torch::Tensor& logits, const torch::Tensor& y) {
  if (logits.dim() != 2 || y.dim() != 1 || y.size(0) != logits.size(0)) {
    throw DataError(fmt::format("labels of shape [{}] for logits of shape [{}]", fmt::join(y.sizes(), ", "),
                                fmt::join(logits.sizes(), ", ")),
                    "logits are (n, classes), labels (n)");
  }
  const auto classes = logits.size(1);
  const auto found = first_outside(y, classes);
  if (!found) return;
  throw DataError(fmt::format("row {} of {} has label {}, but the logits have {} classes", found->place,
                              y.size(0), found->label, classes),
                  found->label == kIgnoredToken
                      ? "torch's ignore_index is not supported: leave rows without a class out of the data"
                      : "labels count from 0, and the last layer has one output per class");
}

// No row is left out: torch refuses each label that is no class.
constexpr auto kNoLabel = std::numeric_limits<int64_t>::min();

// In float32 or float64.
torch::Tensor wide(const torch::Tensor& output) {
  return output.scalar_type() == torch::kFloat64 ? output : output.to(torch::kFloat32);
}

// One tensor, on every device and of every type that it is asked for. A captured step finds what the steps
// before it have copied.
class DeviceCopies {
 public:
  explicit DeviceCopies(const std::vector<double>& values)
      : values_(torch::tensor(values, torch::dtype(torch::kFloat64))) {}

  torch::Tensor on(torch::Device device, torch::ScalarType type) {
    const std::lock_guard lock(mutex_);
    auto& copy = copies_[{device.str(), type}];
    if (!copy.defined()) copy = values_.to(device, type);
    return copy;
  }

 private:
  const torch::Tensor values_;
  std::mutex mutex_;
  std::map<std::pair<std::string, torch::ScalarType>, torch::Tensor> copies_;
};

// How classification() differs from the plain one.
struct ClassTerms {
  double smoothing = 0;
  std::shared_ptr<DeviceCopies> weights = nullptr;
  int64_t weight_count = 0;

  bool plain() const { return smoothing == 0 && !weights; }

  // Undefined for none. Throws DataError for logits of another number of classes.
  torch::Tensor weight_for(const torch::Tensor& logits) const {
    if (!weights) return {};
    if (logits.dim() == 2 && logits.size(1) != weight_count) {
      throw DataError(fmt::format("{} class weights for logits of {} classes", weight_count, logits.size(1)),
                      "give one weight per class");
    }
    return weights->on(logits.device(), logits.scalar_type());
  }
};

Outcome class_outcome(const torch::Tensor& output, const torch::Tensor& y, bool with_top5,
                      const ClassTerms& terms = {}) {
  const auto classes = class_numbers(y);
  if (terms.plain() && class_loss_available(output, classes)) {
    const auto found = class_loss(output, classes);
    if (with_top5) return {found.loss, {found.top1, found.top5}};
    return {found.loss, {found.top1}};
  }
  const auto logits = wide(output);
  if (logits.dim() != 2) require_fitting(logits, classes);  // torch takes (n, classes, ...), too
  const auto weight = terms.weight_for(logits);
  Outcome outcome;
  try {
    outcome.loss =
        torch::cross_entropy_loss(logits, classes, weight, at::Reduction::Sum, kNoLabel, terms.smoothing);
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
  const auto found = first_outside(tokens, vocabulary, ignored);
  if (!found) return;
  throw DataError(fmt::format("row {} has token {}, but the logits have a vocabulary of {}",
                              found->place / length, found->label, vocabulary),
                  fmt::format("tokens count from 0; {} is not counted", ignored));
}

// The weights are asked for before the loss looks at the labels.
void require_weights(const torch::Tensor& labels, int64_t count) {
  const auto found = first_outside(labels, count);
  if (!found) return;
  throw DataError(
      fmt::format("row {} has label {}, but there are {} class weights", found->place, found->label, count),
      "labels count from 0, and each class has a weight");
}

void check_options(const ClassificationOptions& options) {
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1)) {
    throw UsageError(fmt::format("a label smoothing of {}", options.label_smoothing),
                     "it is at least 0 and below 1, such as 0.1");
  }
  const auto& weights = options.class_weights;
  if (weights.empty()) return;
  const bool usable = std::ranges::all_of(weights, [](double w) { return w >= 0 && std::isfinite(w); });
  if (!usable || std::ranges::all_of(weights, [](double w) { return w == 0; })) {
    throw UsageError(fmt::format("the class weights [{}]", fmt::join(weights, ", ")),
                     "they are finite, at least 0, and not all 0");
  }
  if (options.classes && *options.classes != std::ssize(weights)) {
    throw UsageError(fmt::format("{} class weights for {} classes", weights.size(), *options.classes),
                     "give one weight per class");
  }
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
  return classification(ClassificationOptions{.classes = classes});
}

OutputLoss classification(const ClassificationOptions& options) {
  check_options(options);
  const bool with_top5 = options.classes.value_or(5) >= 5;
  ClassTerms terms{.smoothing = options.label_smoothing};
  if (!options.class_weights.empty()) {
    terms.weights = std::make_shared<DeviceCopies>(options.class_weights);
    terms.weight_count = std::ssize(options.class_weights);
  }
  OutputLoss loss{.loss_sum =
                      [with_top5, terms](const torch::Tensor& output, const torch::Tensor& target) {
                        return class_outcome(output, target, with_top5, terms);
                      },
                  .metrics = {{.name = "top1", .type = MetricType::kCount}}};
  if (with_top5) loss.metrics.push_back({.name = "top5", .type = MetricType::kCount});
  if (terms.weights) {
    loss.weight = [terms](const torch::Tensor& target) {
      const auto labels = class_numbers(target);
      require_weights(labels, terms.weight_count);
      return terms.weights->on(labels.device(), torch::kFloat64).index_select(0, labels).sum();
    };
  }
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
