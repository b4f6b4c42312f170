#include <lockstep/data/images/pixels.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <lockstep/data/images/jpeg_image.h>
#include <lockstep/data/images/png_image.h>
#include <lockstep/data/images/resize.h>
#include <lockstep/data/images/stored_image.h>

namespace lockstep {
namespace {

using namespace std::string_view_literals;

struct OtherFormat {
  std::string_view name, bytes;
  size_t at = 0;  // place of the bytes
  bool image = true;
};
constexpr std::array kOtherFormats = {
    OtherFormat{"a GIF file", "GIF8"sv},
    OtherFormat{"a WebP file", "WEBP"sv, 8},
    OtherFormat{"a TIFF file", "II*\0"sv},
    OtherFormat{"a TIFF file", "MM\0*"sv},
    OtherFormat{"a BMP file", "BM"sv},
    OtherFormat{"a HEIF file", "ftyphei"sv, 4},
    OtherFormat{"a HEIF file", "ftyphev"sv, 4},
    OtherFormat{"a HEIF file", "ftypmif1"sv, 4},
    OtherFormat{"a HEIF file", "ftypmsf1"sv, 4},
    OtherFormat{"an AVIF file", "ftypavi"sv, 4},
    OtherFormat{"a video (MP4 or its like)", "ftyp"sv, 4, /*image=*/false},
    OtherFormat{"a JPEG 2000 file", "jP  "sv, 4},
    OtherFormat{"a JPEG XL file", "JXL "sv, 4},
    OtherFormat{"a JPEG XL file", "\xff\x0a"sv},
    OtherFormat{"a Netpbm file", "P5"sv},
    OtherFormat{"a Netpbm file", "P6"sv},
    OtherFormat{"a ZIP archive or a file of NumPy or PyTorch", "PK\x03\x04"sv, 0, /*image=*/false},
    OtherFormat{"a gzip archive", "\x1f\x8b"sv, 0, /*image=*/false},
    OtherFormat{"an array of NumPy", "\x93NUMPY"sv, 0, /*image=*/false},
    OtherFormat{"a PDF file", "%PDF"sv, 0, /*image=*/false},
    OtherFormat{"a web page", "<!DOCTYPE"sv, 0, /*image=*/false},
    OtherFormat{"a web page", "<html"sv, 0, /*image=*/false},
    OtherFormat{"an SVG file", "<svg"sv},
    OtherFormat{"the name of a file in Git LFS ('git lfs pull' brings the file)", "version https://git-lfs"sv,
                0, /*image=*/false}};

DataError no_image(std::span<const uint8_t> file) {
  if (file.empty()) return damaged_image("is empty");
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  for (const auto& format : kOtherFormats) {
    if (text.size() > format.at && text.substr(format.at).starts_with(format.bytes)) {
      const auto what = fmt::format("is {}, PNG or JPEG was expected", format.name);
      return format.image ? unfit_image(what) : DataError(what, "put an image in its place, or remove it");
    }
  }
  return unfit_image(fmt::format("is not a PNG or JPEG file: it starts with bytes {:02x}",
                                 fmt::join(file.first(std::min<size_t>(file.size(), 4)), " ")));
}

// Calls `png` or `jpeg` with the file, by its first bytes.
template <class Png, class Jpeg>
auto by_format(std::span<const uint8_t> file, const Png& png, const Jpeg& jpeg) {
  if (starts_as_png(file)) return png(file);
  if (starts_as_jpeg(file)) return jpeg(file);
  throw no_image(file);
}

void check_side(int size) {
  if (int64_t{size} * size <= kMostImagePixels && size >= 1) return;
  throw UsageError(fmt::format("images of {0} x {0} pixels were asked for, 1 x 1 to {1} pixels can be made",
                               size, kMostImagePixels));
}

// Pillow's weights: 16 bits behind the point.
StoredImage to_grey(const StoredImage& colored) {
  auto image = stored_image(1, colored.height, colored.width);
  const uint8_t* in = colored.values.data();
  for (auto& value : image.values) {
    const uint32_t sum = in[0] * 19595u + in[1] * 38470u + in[2] * 7471u;
    value = static_cast<uint8_t>((sum + (1u << 15)) >> 16);
    in += 3;
  }
  return image;
}

// Puts the channels one behind the other. One channel makes as many equal ones as are asked for.
Pixels planes(const StoredImage& image, int channels) {
  const auto count = image.values.size() / static_cast<size_t>(image.channels);
  const auto stored = static_cast<size_t>(image.channels);
  Pixels pixels{.channels = channels, .height = image.height, .width = image.width};
  pixels.values.resize(count * static_cast<size_t>(channels));
  for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
    const uint8_t* in = image.values.data() + (stored == 1 ? 0 : c);
    uint8_t* out = pixels.values.data() + c * count;
    for (size_t i = 0; i < count; ++i) out[i] = in[i * stored];
  }
  return pixels;
}

}  // namespace

void check_image_size(int64_t height, int64_t width, uint64_t file_bytes, uint64_t most_pixels) {
  if (height < 1 || width < 1) {
    throw damaged_image(fmt::format(
        "is damaged: its header promises {} x {} pixels, at least 1 x 1 were expected", height, width));
  }
  if (height > kMostImageSide || width > kMostImageSide || height * width > kMostImagePixels) {
    throw DataError(fmt::format("has {} x {} pixels, at most {} and {} on a side are taken", height, width,
                                kMostImagePixels, kMostImageSide),
                    "make the image smaller");
  }
  if (static_cast<uint64_t>(height * width) > most_pixels) {
    throw damaged_image(
        fmt::format("is truncated: its header promises {} x {} pixels, a file of {} bytes "
                    "can hold {} at most",
                    height, width, file_bytes, most_pixels));
  }
}

Pixels decode_image(std::span<const uint8_t> file, const DecodeOptions& options) {
  if (options.channels != 1 && options.channels != 3) {
    throw UsageError(
        fmt::format("images of {} channels were asked for, 1 or 3 can be made", options.channels));
  }
  if (options.size != 0) check_side(options.size);
  auto image = by_format(file, decode_png, decode_jpeg);
  if (options.channels == 1 && image.channels == 3) image = to_grey(image);
  if (options.size != 0) image = resized_center(image, options.size);
  return planes(image, options.channels);
}

ImageInfo image_info(std::span<const uint8_t> file) { return image_info(file, file.size()); }

ImageInfo image_info(std::span<const uint8_t> start, uint64_t file_bytes) {
  return by_format(
      start, [&](const auto& bytes) { return png_info(bytes, file_bytes); },
      [&](const auto& bytes) { return jpeg_info(bytes, file_bytes); });
}

Pixels resize_and_crop(const Pixels& image, int size) {
  check_side(size);
  const auto plane = static_cast<size_t>(image.height) * static_cast<size_t>(image.width);
  if (image.height < 1 || image.width < 1 || image.channels < 1 ||
      image.values.size() != plane * static_cast<size_t>(image.channels)) {
    throw UsageError(fmt::format("an image of {} x {} x {} has {} values", image.channels, image.height,
                                 image.width, image.values.size()));
  }
  Pixels resized{.channels = image.channels, .height = size, .width = size};
  for (auto next = image.values.begin(); next != image.values.end(); next += static_cast<ptrdiff_t>(plane)) {
    const StoredImage one{.channels = 1,
                          .height = image.height,
                          .width = image.width,
                          .values = {next, next + static_cast<ptrdiff_t>(plane)}};
    const auto square = resized_center(one, size);
    resized.values.insert(resized.values.end(), square.values.begin(), square.values.end());
  }
  return resized;
}

}  // namespace lockstep
