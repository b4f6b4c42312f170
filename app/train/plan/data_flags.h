// The values of the flags that say which rows are read, and how: of `train` and of every other command that
// reads data. The flags themselves: settings/data.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

// The shape of a data set that is made from a seed.
struct SyntheticShape {
  int64_t channels = 1, height = 28, width = 28;
  int64_t classes = 10;

  bool operator==(const SyntheticShape&) const = default;
};

// Reads "3x32x32" and "3x32x32:100": channels, height, width and, behind the colon, classes. Throws
// UsageError.
SyntheticShape parse_synthetic_shape(const std::string& text);

// The text that parse_synthetic_shape() reads.
std::string to_string(const SyntheticShape& shape);

// As given. An empty value means the default.
struct DataFlags {
  std::optional<std::string> path = {};     // a folder, a file, or a name of known_data()
  std::optional<int64_t> limit_train = {};  // rows, from the first one on; empty: all
  std::optional<int64_t> limit_test = {};
  std::optional<double> test_share = {};   // of the images of a folder without test images
  std::optional<int64_t> image_size = {};  // the side that images of files are resized and cropped to
  std::optional<int> channels = {};  // of images of files, 1 or 3; no flag: a network that is there says it
  std::optional<SyntheticShape> synthetic_shape = {};
  std::optional<int64_t> data_memory = {};  // bytes; empty: half of what is free
  std::optional<int> workers = {};          // threads that decode images
  bool skip_unreadable = false;
};

}  // namespace lockstep
