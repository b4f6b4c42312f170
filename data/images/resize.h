// Resizing of stored images; pixels.h says what it gives.
#pragma once

#include <lockstep/data/images/stored_image.h>

namespace lockstep {

// Returns the central square of `size` x `size` pixels of the resized image.
StoredImage resized_center(const StoredImage& image, int size);

}  // namespace lockstep
