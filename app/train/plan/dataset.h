// The data set a command works on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <lockstep/app/files/network_facts.h>
#include <lockstep/app/train/plan/data_flags.h>
#include <lockstep/data/known_data.h>
#include <lockstep/models/factory.h>

namespace lockstep {

struct LoadedData {
  TrainingData set;
  std::string origin;         // the folder or file, or how it was made
  int64_t all_test_rows = 0;  // `set` may hold only the first of them
  // Hashes of the rows in `set`. Their number is compared besides.
  std::string train_hash = {}, test_hash = {};

  bool test_limited() const { return set.test.rows < all_test_rows; }

  // The number of rows to evaluate on: "10,000", or "the first 1,000 of 10,000".
  std::string test_count() const;
};

// Finds out what flags.path, or without one data_folder(), holds, and reads it. targets: as of
// load_tensor_data(); other data have none to choose. Throws UsageError for flags that such data do not have
// and for a limit above the number of rows, MemoryError for a file that memory cannot hold, and what reading
// the files throws.
LoadedData load_data(const DataFlags& flags, uint64_t seed, std::span<const std::string> targets = {});

// "img/s" if rows are images, else "rows/s".
std::string speed_unit(const TrainingData& data);

// What a network for these data needs to be used without them. Nothing for data with several inputs, with
// sizes that differ between batches, without classes or with more than 100,000. Call it before as_images().
std::optional<NetworkFacts> facts_of(const TrainingData& data);

// Returns the data as the models of models/factory.h take them: images of floats in [0, 1] from bytes. Throws
// DataError, which names the model, unless a row is one image (channels, height, width) of floats or uint8
// with one label.
TrainingData as_images(TrainingData data, const std::string& model);

// Returns the spec of this model for such rows, which as_images() has returned.
ModelSpec model_spec(const std::string& model, const TrainingData& data);

}  // namespace lockstep
