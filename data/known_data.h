// A data set as training sees it, and those that have a name instead of a folder.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/data/dataset.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Rows for training or for testing.
struct DataRows {
  int64_t rows = 0;
  SourceFactory sources = {};
  // Returns a hash of the first `count` rows. Other bytes have other hashes.
  std::function<std::string(int64_t count)> hash_of_first = {};
};

struct TrainingData {
  std::string name = {};
  std::vector<int64_t> row_shape = {1, kImageSide, kImageSide};  // channels, height, width of a row of X
  int64_t classes = kImageClasses;
  DataRows train = {}, test = {};
};

// Returns these images, whose memory it shares, as training sees them.
TrainingData as_training_data(const Dataset& set);

// A data set that needs no files.
struct KnownData {
  std::string_view name;
  int64_t train_rows = 0, test_rows = 0;  // unless other numbers are asked for
  TrainingData (*make)(uint64_t seed, int64_t train_rows, int64_t test_rows);
};

std::span<const KnownData> known_data();

// Returns null for any other name, which is that of a folder.
const KnownData* find_known_data(std::string_view name);

}  // namespace lockstep
