#include <lockstep/app/commands/count_confusion.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include <lockstep/app/train/plan/labels.h>
#include <lockstep/parallel/training/prediction.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int64_t kMostInMatrix = 5000;

std::vector<int64_t> as_vector(const torch::Tensor& numbers) {
  const auto contiguous = numbers.to(torch::kInt64).contiguous();
  const auto* begin = contiguous.data_ptr<int64_t>();
  return {begin, begin + contiguous.numel()};
}

}  // namespace

void check_has_confusion(const TrainingData& data) {
  if (!data.classes) {
    throw UsageError(fmt::format("--confusion counts classes, {} has none: {}", data.name, data.no_classes),
                     "leave --confusion out");
  }
  if (*data.classes > kMostInMatrix) {
    throw UsageError(fmt::format("--confusion counts {} classes at most, {} has {}",
                                 with_commas(kMostInMatrix), data.name, with_commas(*data.classes)),
                     "leave --confusion out");
  }
}

Confusion count_confusion(std::span<const Model> models,
                          std::span<const std::shared_ptr<const BatchSource>> sources,
                          const TrainingData& data, Precision precision, ReplicaWorkers& workers,
                          Communicator& communicator) {
  std::vector<int64_t> rows(static_cast<size_t>(data.test.rows));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  const auto logits = predict(models, sources, rows, precision, workers, communicator);
  if (logits.dim() != 2 || logits.size(1) > kMostInMatrix) {
    throw UsageError(fmt::format("--confusion needs logits (rows, classes) of {} classes at most, the output "
                                 "of the model is [{}]",
                                 with_commas(kMostInMatrix), fmt::join(logits.sizes(), ", ")),
                     "leave --confusion out");
  }
  Confusion confusion(std::max(logits.size(1), *data.classes), data.class_names);
  confusion.add(class_labels(data.test), as_vector(logits.argmax(1)));
  return confusion;
}

}  // namespace lockstep
