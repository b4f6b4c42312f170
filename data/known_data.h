// Images as training sees them, and data sets that have a name instead of a folder.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <lockstep/data/dataset.h>
#include <lockstep/data/training_data.h>

namespace lockstep {

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
