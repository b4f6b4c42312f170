// An image as a decoder leaves it, for the sources of this folder: pixels one behind the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/support/error.h>

namespace lockstep {

struct StoredImage {
  int channels = 0, height = 0, width = 0;
  std::vector<uint8_t> values = {};  // (height, width, channels)

  size_t row_bytes() const { return static_cast<size_t>(width) * static_cast<size_t>(channels); }
  const uint8_t* row(int y) const { return values.data() + static_cast<size_t>(y) * row_bytes(); }
  uint8_t* row(int y) { return values.data() + static_cast<size_t>(y) * row_bytes(); }
};

// An image of this shape, all 0.
inline StoredImage stored_image(int channels, int height, int width) {
  StoredImage image{.channels = channels, .height = height, .width = width};
  image.values.resize(image.row_bytes() * static_cast<size_t>(height));
  return image;
}

// The error about a broken file.
inline DataError damaged_image(const std::string& what) { return DataError(what, "replace it"); }

// The error about a whole file that is not taken.
inline DataError unfit_image(const std::string& what) {
  return DataError(what, "save it again as PNG or JPEG with 8 bits per channel");
}

// Throws DataError for an image that is too large, or larger than `most_pixels`, which fit into a file of
// `file_bytes` bytes.
void check_image_size(int64_t height, int64_t width, uint64_t file_bytes, uint64_t most_pixels);

}  // namespace lockstep
