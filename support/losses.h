// Losses of a network's output, as sums over the rows, with the metrics that belong to them. For
// model_factory.h:
//
//   model_factory<Net>(args...).loss(mse())
//
// Each is differentiable in the output; metrics are not. They are computed in float32, or in float64 where
// the output is: a sum of bfloat16 losses would keep three digits. Shapes that do not fit throw DataError.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// A loss of the model's output for a batch, and of the batch's one target.
struct OutputLoss {
  std::function<Outcome(const torch::Tensor& output, const torch::Tensor& target)> loss_sum;
  std::vector<MetricKind> metrics = {};
  std::function<torch::Tensor(const torch::Tensor& target)> weight = {};  // as Model::weight
};

// Cross-entropy. output: logits (n, classes), with at least one class. target: (n), each 0 .. classes - 1;
// int64, or another integer type, which is converted. n may be 0. Metrics: "top1", the rows whose class has
// the largest logit, and "top5", those with fewer than five logits larger than their class's, unless there
// are known to be fewer than five classes.
//
// Throws DataError for labels that are no integers, and, on a CPU, that are not among the classes. That
// includes -100, torch's ignore_index: a row without a class would still count in the mean loss. On a GPU
// labels are not looked at, since the host would have to wait for it: a kernel ends the process's work there
// by a device-side assertion.
OutputLoss classification(std::optional<int64_t> classes = std::nullopt);

struct ClassificationOptions {
  std::optional<int64_t> classes = {};  // as above
  // The share of a row's target that all classes get alike, 0 <= it < 1: torch's label_smoothing.
  double label_smoothing = 0;
  // Torch's weight: one per class, at least 0, not all 0. A batch's loss is divided by the sum of its rows'
  // weights, whatever the split. Empty: each row counts 1.
  std::vector<double> class_weights = {};
};

// The same with torch's label_smoothing and weight. Metrics count each row once. Throws UsageError for values
// out of range, or another number of weights than of classes.
OutputLoss classification(const ClassificationOptions& options);

// A row's loss is the mean of its numbers' squared errors, as of torch's mse_loss. Output and target have one
// shape (n, ...). Metrics: "mae", the mean absolute error, and "rmse", the root of the mean squared error.
OutputLoss mse();

// The same with torch's smooth_l1_loss, which is quadratic for errors below beta > 0, and linear beyond.
// Metric: "mae".
OutputLoss smooth_l1(double beta = 1);

// Torch's ignore_index.
inline constexpr int64_t kIgnoredToken = -100;

// Cross-entropy over tokens: the mean over all tokens of a batch, however many each row has. output: logits
// (n, tokens, vocabulary); target: (n, tokens) int64. Tokens of class `ignored`, such as padding, do not
// count. Metrics, over tokens: "perplexity", and "top1", the share of them that have the largest logit. On a
// CPU other tokens outside of the vocabulary throw DataError.
OutputLoss token_cross_entropy(int64_t ignored = kIgnoredToken);

// classification()'s loss, "top1" and "top5".
Outcome classification_outcome(const torch::Tensor& logits, const torch::Tensor& y);

}  // namespace lockstep
