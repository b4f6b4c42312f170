// The orientation of images, from their EXIF.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/data/images/stored_image.h>

namespace lockstep {

constexpr int kUpright = 1;

// Returns the orientation, 1 to 8, that a TIFF header and its first directory name: what a chunk eXIf of PNG
// holds, and a segment APP1 of JPEG after "Exif", 0, 0. kUpright where it names none or cannot be read.
int exif_orientation(std::span<const uint8_t> tiff);

// True if this orientation exchanges height and width.
inline bool exchanges_sides(int orientation) { return orientation >= 5; }

// Turns and mirrors an image of this orientation upright.
StoredImage upright(StoredImage image, int orientation);

}  // namespace lockstep
