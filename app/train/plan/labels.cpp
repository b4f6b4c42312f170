#include <lockstep/app/train/plan/labels.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <string>

#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr int64_t kBlock = 256;  // rows read at a time

std::string name_of_class(const TrainingData& data, size_t label) {
  return label < data.class_names.size() ? fmt::format("{} ({})", label, in_quotes(data.class_names[label]))
                                         : std::to_string(label);
}

}  // namespace

std::vector<int64_t> class_labels(const DataRows& rows) {
  if (rows.labels) return rows.labels();
  const auto source = rows.sources(torch::kCPU);
  Batch into(std::make_shared<const BatchSpec>(source->spec()));
  std::vector<int64_t> labels;
  for (int64_t begin = 0; begin < rows.rows; begin += kBlock) {
    source->gather(torch::arange(begin, std::min(begin + kBlock, rows.rows)), /*epoch=*/0, into);
    const auto block = into.target().to(torch::kInt64).contiguous();
    const auto* first = block.data_ptr<int64_t>();
    labels.insert(labels.end(), first, first + block.numel());
  }
  return labels;
}

std::string label_hint(const TensorSpec& target) {
  if (target.row_shape == std::vector<int64_t>{1}) {
    const bool integers = at::isIntegralType(target.dtype, /*includeBool=*/false);
    return std::string("save one number per row: .squeeze(1)") + (integers ? "" : ".to(torch.int64)");
  }
  if (!target.row_shape.empty()) {
    return "save one number per row; of columns with a 1 for the class, .argmax(1) makes it";
  }
  if (!at::isIntegralType(target.dtype, /*includeBool=*/false)) {
    return "save them as int64 numbers from 0 on: .to(torch.int64)";
  }
  return "classes count from 0; leave rows without a class out of the data";
}

std::vector<double> balanced_weights(const TrainingData& data) {
  const auto classes = class_count(data);
  std::vector<int64_t> counts(static_cast<size_t>(classes));
  for (const auto label : class_labels(data.train)) {
    if (label < 0 || label >= classes) {
      throw DataError(
          fmt::format("a training row of {} has label {}, there are {} classes", data.name, label, classes),
          "labels count from 0");
    }
    ++counts[static_cast<size_t>(label)];
  }
  const auto empty = std::ranges::find(counts, 0);
  if (empty != counts.end()) {
    throw DataError(fmt::format("class {} of {} has no training {}, so that no weight balances it",
                                name_of_class(data, static_cast<size_t>(empty - counts.begin())), data.name,
                                data.row_noun),
                    "leave --class-weights out, or number the classes without gaps");
  }
  std::vector<double> weights;
  for (const auto count : counts) {
    weights.push_back(static_cast<double>(data.train.rows) /
                      (static_cast<double>(classes) * static_cast<double>(count)));
  }
  return weights;
}

}  // namespace lockstep
