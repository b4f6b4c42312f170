#include <lockstep/data/training_data.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include <lockstep/data/images/normalize.h>
#include <lockstep/support/error.h>

namespace lockstep {

int64_t class_count(const TrainingData& data) {
  if (data.classes) return *data.classes;
  throw DataError(fmt::format("{} has no classes: {}", data.name, data.no_classes),
                  "classes are integers from 0 on, one per row, in the one target");
}

TrainingData with_pixels_as_floats(TrainingData data, std::string_view input) {
  const auto found = std::ranges::find(data.spec, input, &TensorSpec::name);
  if (found == data.spec.end()) {
    throw UsageError(fmt::format("{} has no tensor named {}", data.name, input));
  }
  if (found->dtype != torch::kUInt8) return data;
  found->dtype = torch::kFloat32;
  for (auto* rows : {&data.train, &data.test, data.validation ? &*data.validation : nullptr}) {
    if (rows) rows->sources = normalized(std::move(rows->sources), {}, std::string(input));
  }
  return data;
}

}  // namespace lockstep
