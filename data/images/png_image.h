// PNG files, by libpng.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/data/images/pixels.h>
#include <lockstep/data/images/stored_image.h>

namespace lockstep {

bool starts_as_png(std::span<const uint8_t> file);

// Both throw DataError as pixels.h says.
ImageInfo png_info(std::span<const uint8_t> file);

// Returns the image upright, with 1 or 3 channels, as the file has them.
StoredImage decode_png(std::span<const uint8_t> file);

}  // namespace lockstep
