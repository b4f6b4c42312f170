// The data set a command works on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/data/known_data.h>
#include <lockstep/models/factory.h>

namespace lockstep {

struct LoadedData {
  TrainingData set;
  std::string origin;         // the folder, or how it was made
  int64_t all_test_rows = 0;  // `set` may hold only the first of them
  // Hashes of the rows in `set`. Their number is compared besides.
  std::string train_hash = {}, test_hash = {};

  bool test_limited() const { return set.test.rows < all_test_rows; }

  // The number of images to evaluate on: "10,000", or "the first 1,000 of 10,000".
  std::string test_count() const;
};

// The number of rows to use, from the first one on; empty: all.
struct DataLimits {
  std::optional<int64_t> train = {};
  std::optional<int64_t> test = {};
};

// data: a folder, a name of known_data(), or empty: what data_folder() finds. Throws UsageError if a limit is
// above the number of images, and what reading the files throws.
LoadedData load_data(const std::optional<std::string>& data, uint64_t seed, const DataLimits& limits);

// Returns the spec of this model for such rows.
ModelSpec model_spec(const std::string& model, const TrainingData& data);

}  // namespace lockstep
