#include <lockstep/app/train/plan/dataset.h>

#include <fmt/format.h>

#include <algorithm>

#include <lockstep/data/data_folder.h>
#include <lockstep/data/idx_folder.h>
#include <lockstep/data/synthetic.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int64_t kSyntheticTrain = 60'000;
constexpr int64_t kSyntheticTest = 10'000;

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
                    error.hint_text() + "; --data DIR names a folder, --data synthetic needs no files");
  }
}

LoadedData load_set(const std::string& folder, uint64_t seed, const DataLimits& limits) {
  if (folder == kSyntheticData) {
    const auto test_rows = limits.test.value_or(kSyntheticTest);
    return {.set = make_synthetic(seed, limits.train.value_or(kSyntheticTrain), test_rows),
            .origin = fmt::format("made from seed {}", seed),
            .all_test_rows = std::max(test_rows, kSyntheticTest)};
  }
  LoadedData loaded{.set = load_folder(folder), .origin = folder};
  loaded.all_test_rows = loaded.set.test.size();
  limit(loaded.set.train, limits.train, "train", "training", folder);
  limit(loaded.set.test, limits.test, "test", "test", folder);
  return loaded;
}

}  // namespace

std::string LoadedData::test_count() const {
  const auto rows = with_commas(set.test.size());
  return test_limited() ? fmt::format("the first {} of {}", rows, with_commas(all_test_rows)) : rows;
}

LoadedData load_data(const std::optional<std::string>& data, uint64_t seed, const DataLimits& limits) {
  auto loaded = load_set(data_folder(data), seed, limits);
  loaded.train_hash = hash_of(loaded.set.train);
  loaded.test_hash = hash_of(loaded.set.test);
  return loaded;
}

}  // namespace lockstep
