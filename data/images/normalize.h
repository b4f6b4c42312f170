// Gives images of bytes to networks as floats, and measures what they are normalised by.
//
//   const auto pixels = measure(photos.train);  // mean and deviation of each channel
//   const auto train = normalized(augmented(photos.train.sources, parse_augmentation("crop:4,flip"), seed),
//                                 pixels.normalization);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/data/training_data.h>
#include <lockstep/support/types.h>

namespace lockstep {

// A pixel becomes (byte / 255 - mean) / deviation of its channel, computed in double and rounded to float
// once: the same bits on CPUs and GPUs. Empty: byte / 255.
struct Normalization {
  std::vector<double> mean = {}, deviation = {};  // one for each channel, or one for all

  bool operator==(const Normalization&) const = default;
};

// Returns "none", or "mean 0.5, 0.4, 0.3, deviation 0.2, 0.2, 0.2" in digits that give the same numbers
// again.
std::string to_string(const Normalization& normalization);

// Throws UsageError unless there are as many deviations as means, 1 or `channels`, all finite and the
// deviations above 0.
void check(const Normalization& normalization, int64_t channels);

// Returns the sources with their images of bytes as floats. What is normalised is `input`, or without a name
// the one input of uint8 (channels, height, width). Resident rows are gathered, augmented and normalised in
// one pass. An input with a name may have rows of any shape, if bytes are only divided. It throws
// UsageError as check() does, and DataError if a source has no such input, or without a name several.
SourceFactory normalized(SourceFactory bytes, Normalization normalization, std::string input = {});

// Returns the data with this input of bytes as floats, for training, testing and validation. Another type
// stays as it is. Throws as above, and UsageError if there is no such tensor, or if one of another type would
// have to be normalised.
TrainingData normalized(TrainingData data, const Normalization& normalization, std::string_view input);

struct MeasureOptions {
  int64_t sample = 0;  // so many rows at most, drawn from the seed; 0: all rows
  uint64_t seed = 0;
  std::string input = {};  // as for normalized()
};

struct MeasuredPixels {
  Normalization normalization = {};
  int64_t rows = 0;                    // that were looked at
  std::vector<double> deviation = {};  // as it is: 0 for a channel with one value
};

// Returns mean and deviation of each channel over the pixels of these rows, as they are in epoch 0. They are
// computed in double of whole sums, so that the order of rows does not matter. A channel with one value is
// normalised by deviation 1. A sample is the first rows of a shuffle: Fisher-Yates from the front with draws
// of SplitMix64(seed, {6, rows}). Throws UsageError for a negative sample, DataError without rows, as
// normalized() does, and what the source throws.
MeasuredPixels measure(const DataRows& rows, const MeasureOptions& options = {});

}  // namespace lockstep
