// Images as files have them, PNG and JPEG, and as models take them: bytes in (channels, height, width).
//
// The functions are of the target lockstep_images, which needs libpng and libjpeg-turbo, and no torch. They
// keep no state: any number of threads may call them. They throw DataError for what a file is or lacks; its
// message is what follows the file's name ("is truncated: ..."), which they do not know: callers put it in
// front. std::bad_alloc passes.
//
// These are taken:
//   PNG    grey and colour, with a palette, of 1 to 16 bits, interlaced. Of 16 bits the upper 8 count.
//          Transparency (an alpha channel or a transparent colour) is left out: the colours under it stay as
//          they are in the file, as with Pillow's convert("RGB"). Gamma and colour profiles have no effect.
//   JPEG   baseline and progressive, grey, colour, CMYK and YCCK. CMYK is converted as Pillow does, without a
//          profile, and taken as inverted, as Adobe's programs write it.
// An orientation that the file's EXIF names is applied, in both formats: images come upright. (torchvision's
// ImageFolder leaves them as they are stored.) EXIF that cannot be read means upright. Bytes after the end of
// the image are ignored.
//
// These are refused: other formats, by their names; a JPEG of 12 bits or with another number of components; a
// truncated or damaged file, also one of which libpng or libjpeg only warn; more than kMostImagePixels; and a
// header that promises more pixels than a file of this size can hold, before any memory is allocated for
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

constexpr int64_t kMostImagePixels = int64_t{1} << 27;  // 400 MB in colour
constexpr int64_t kMostImageSide = 1'000'000;           // as libpng's own limit

struct Pixels {
  int channels = 0, height = 0, width = 0;
  std::vector<uint8_t> values = {};  // (channels, height, width), rows in order
};

struct DecodeOptions {
  // 3: red, green, blue; a grey image gets three equal ones. 1: grey; colours are weighted as by Pillow's
  // convert("L"): (19595 red + 38470 green + 7471 blue) / 65536, rounded.
  int channels = 3;

  // The side of the square that resize_and_crop() makes of the image; 0: the image as it is.
  int size = 0;
};

// Decodes a whole file, PNG or JPEG by its first bytes. Throws UsageError unless channels is 1 or 3, and for
// a size below 0 or of more than kMostImagePixels.
Pixels decode_image(std::span<const uint8_t> file, const DecodeOptions& options);

struct ImageInfo {
  int channels = 0;           // of the file, without alpha: 1 grey, 3 colour or palette, 4 CMYK
  int height = 0, width = 0;  // upright
  bool alpha = false;         // it has an alpha channel or a transparent colour, which decoding leaves out
  bool sixteen_bits = false;  // decoding leaves out the lower 8
  std::string format = {};    // "PNG" or "JPEG"
};

// Reads what stands before the pixels, with the checks on size; damage behind that is not seen.
ImageInfo image_info(std::span<const uint8_t> file);

// The same of the first bytes of a file of `file_bytes` bytes: its format, channels and bits. Where they end
// too early, an image is truncated, or not seen as turned or as one with transparency.
ImageInfo image_info(std::span<const uint8_t> start, uint64_t file_bytes);

// Resizes so that the shorter side has `size` pixels, also when that enlarges, then takes the central square.
// Bilinear with antialias: the bytes of torchvision's Resize(size) and CenterCrop(size) for images of Pillow.
// Throws UsageError for a size below 1 or of more than kMostImagePixels, and unless values has the image's
// size.
Pixels resize_and_crop(const Pixels& image, int size);

}  // namespace lockstep
