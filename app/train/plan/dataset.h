// The data set a command works on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/data/dataset.h>

namespace lockstep {

struct LoadedData {
  Dataset set;
  std::string origin;         // the folder, or how it was made
  int64_t all_test_rows = 0;  // `set` may hold only the first of them
  // hash_of() the images and labels in `set`. The number of rows is compared besides.
  std::string train_hash = {}, test_hash = {};

  bool test_limited() const { return set.test.size() < all_test_rows; }

  // The number of images to evaluate on: "10,000", or "the first 1,000 of 10,000".
  std::string test_count() const;
};

// The number of rows to use, from the first one on; empty: all.
struct DataLimits {
  std::optional<int64_t> train = {};
  std::optional<int64_t> test = {};
};

// data: a folder, "synthetic", or empty: the folder that data_folder() finds. Throws UsageError if a limit is
// above the number of images, and what reading the files throws.
LoadedData load_data(const std::optional<std::string>& data, uint64_t seed, const DataLimits& limits);

}  // namespace lockstep
