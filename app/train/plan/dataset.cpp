#include <lockstep/app/train/plan/dataset.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <lockstep/data/data_folder.h>
#include <lockstep/data/idx_folder.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

void limit(ImageSet& set, std::optional<int64_t> limit, const char* flag, const char* kind,
           const std::string& origin) {
  if (!limit) return;
  if (*limit > set.size()) {
    throw UsageError(fmt::format("--limit-{} {} is more than the {} {} images of {}", flag, *limit,
                                 with_commas(set.size()), kind, origin),
                     "leave it out to use all of them");
  }
  set = first_rows(set, *limit);
}

// load_idx_folder(), with the flags in its hints.
Dataset load_folder(const std::string& folder) {
  try {
    return load_idx_folder(folder);
  } catch (const DataError& error) {
    throw DataError(error.message_text(),
                    error.hint_text() + fmt::format("; --data DIR names a folder, --data {} needs no files",
                                                    fmt::join(known_data_names(), " or ")));
  }
}

LoadedData load_set(const std::string& folder, uint64_t seed, const DataLimits& limits) {
  if (const auto* known = find_known_data(folder)) {
    const auto test_rows = limits.test.value_or(known->test_rows);
    return {.set = known->make(seed, limits.train.value_or(known->train_rows), test_rows),
            .origin = fmt::format("made from seed {}", seed),
            .all_test_rows = std::max(test_rows, known->test_rows)};
  }
  auto images = load_folder(folder);
  const auto all_test_rows = images.test.size();
  limit(images.train, limits.train, "train", "training", folder);
  limit(images.test, limits.test, "test", "test", folder);
  return {.set = as_training_data(images), .origin = folder, .all_test_rows = all_test_rows};
}

}  // namespace

std::string LoadedData::test_count() const {
  const auto rows = with_commas(set.test.rows);
  return test_limited() ? fmt::format("the first {} of {}", rows, with_commas(all_test_rows)) : rows;
}

LoadedData load_data(const std::optional<std::string>& data, uint64_t seed, const DataLimits& limits) {
  auto loaded = load_set(data_folder(data), seed, limits);
  loaded.train_hash = loaded.set.train.hash_of_first(loaded.set.train.rows);
  loaded.test_hash = loaded.set.test.hash_of_first(loaded.set.test.rows);
  return loaded;
}

ModelSpec model_spec(const std::string& model, const TrainingData& data) {
  return {.name = model,
          .channels = data.row_shape.at(0),
          .classes = data.classes,
          .initialization = {},
          .height = data.row_shape.at(1),
          .width = data.row_shape.at(2)};
}

}  // namespace lockstep
