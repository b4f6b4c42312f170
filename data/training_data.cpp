#include <lockstep/data/training_data.h>

#include <fmt/format.h>

#include <string>
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
  return normalized(std::move(data), Normalization{}, input);
}

}  // namespace lockstep
