#include <lockstep/data/images/png_image.h>

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <lockstep/data/images/exif.h>

namespace lockstep {
namespace {

constexpr std::array<uint8_t, 8> kPngSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr uint64_t kMostDeflated = 1032;  // bytes from one, by deflate
constexpr size_t kChunkFrame = 12;        // length, type and checksum
constexpr size_t kPngHeaderBytes = 13;

uint32_t number_at(std::span<const uint8_t> bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = at; i < at + 4; ++i) value = value << 8 | bytes[i];
  return value;
}

// The fields that lockstep reads of the chunks itself. Their checksums are libpng's matter.
struct PngChunks {
  uint32_t width = 0, height = 0;
  int depth = 0, color_type = 0;
  bool transparent_color = false;
  int orientation = kUpright;

  int samples() const {
    return color_type == PNG_COLOR_TYPE_GRAY || color_type == PNG_COLOR_TYPE_PALETTE ? 1
           : color_type == PNG_COLOR_TYPE_GRAY_ALPHA                                 ? 2
           : color_type == PNG_COLOR_TYPE_RGB                                        ? 3
                                                                                     : 4;
  }
};

// Reads the header, and refuses more pixels than the file can hold.
PngChunks read_png_header(std::span<const uint8_t> file, uint64_t file_bytes) {
  PngChunks chunks;
  const size_t at = kPngSignature.size();
  if (file.size() < at + kChunkFrame + kPngHeaderBytes) {
    throw damaged_image(fmt::format("is truncated: it has {} bytes, {} were expected at least", file.size(),
                                    at + kChunkFrame + kPngHeaderBytes));
  }
  if (number_at(file, at) != kPngHeaderBytes || std::memcmp(&file[at + 4], "IHDR", 4) != 0) {
    throw damaged_image("is damaged: it starts with another chunk than IHDR of 13 bytes");
  }
  chunks.width = number_at(file, at + 8);
  chunks.height = number_at(file, at + 12);
  chunks.depth = file[at + 16];
  chunks.color_type = file[at + 17];
  constexpr std::string_view kTypes("\0\2\3\4\6", 5);
  if (kTypes.find(static_cast<char>(chunks.color_type)) == kTypes.npos) {
    throw damaged_image(
        fmt::format("is damaged: it has color type {}, 0, 2, 3, 4 or 6 were expected", chunks.color_type));
  }
  if (chunks.depth != 1 && chunks.depth != 2 && chunks.depth != 4 && chunks.depth != 8 &&
      chunks.depth != 16) {
    throw damaged_image(
        fmt::format("is damaged: it has {} bits, 1, 2, 4, 8 or 16 were expected", chunks.depth));
  }
  const auto most_bits = file_bytes * kMostDeflated * 8;
  check_image_size(chunks.height, chunks.width, file_bytes,
                   most_bits / static_cast<uint64_t>(chunks.depth * chunks.samples()));
  return chunks;
}

// Reads the header and looks at the other chunks, up to the first that the file does not hold whole.
PngChunks read_png_chunks(std::span<const uint8_t> file, uint64_t file_bytes) {
  PngChunks chunks = read_png_header(file, file_bytes);
  size_t at = kPngSignature.size();
  while (file.size() - at >= kChunkFrame) {
    const size_t length = number_at(file, at);
    if (length > file.size() - at - kChunkFrame) break;
    const std::string_view type(reinterpret_cast<const char*>(&file[at + 4]), 4);
    if (type == "IEND") break;
    if (type == "tRNS") chunks.transparent_color = true;
    if (type == "eXIf") chunks.orientation = exif_orientation(file.subspan(at + 8, length));
    at += kChunkFrame + length;
  }
  return chunks;
}

// libpng's functions and the ones that it calls back share this. An error of libpng jumps to where `jump` was
// set: functions that call libpng after that have no objects with destructors, and neither has this.
struct PngDecoding {
  png_structp png;
  png_infop info;
  const uint8_t* next;
  size_t left;
  jmp_buf jump;
  bool truncated;
  char problem[200];
};
static_assert(std::is_trivially_destructible_v<PngDecoding>);

[[noreturn]] void fail_png(png_structp png, png_const_charp message) {
  auto& decoding = *static_cast<PngDecoding*>(png_get_error_ptr(png));
  std::snprintf(decoding.problem, sizeof decoding.problem, "%s", message);
  std::longjmp(decoding.jump, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

void read_png_bytes(png_structp png, png_bytep into, size_t count) {
  auto& decoding = *static_cast<PngDecoding*>(png_get_io_ptr(png));
  if (count > decoding.left) {
    decoding.truncated = true;
    png_error(png, "the file ends early");
  }
  std::memcpy(into, decoding.next, count);
  decoding.next += count;
  decoding.left -= count;
}

// Reads up to the pixels, and asks libpng for bytes of 8 bits: grey, colour, or places in the palette. Other
// chunks are skipped: their content has no effect, and libpng would warn about it, or decompress it.
bool start_png(PngDecoding* decoding) {
  if (setjmp(decoding->jump) != 0) return false;
  png_structp png = decoding->png;
  png_set_error_fn(png, decoding, fail_png, fail_png);  // warnings are errors
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, reinterpret_cast<png_const_bytep>("tRNS"), 1);
  png_set_user_limits(png, static_cast<png_uint_32>(kMostImageSide),
                      static_cast<png_uint_32>(kMostImageSide));
  png_set_read_fn(png, decoding, read_png_bytes);
  png_read_info(png, decoding->info);
  if (png_get_color_type(png, decoding->info) == PNG_COLOR_TYPE_PALETTE) {
    png_set_packing(png);
    png_set_check_for_invalid_index(png, 0);  // colored() names the colour
  } else {
    png_set_expand_gray_1_2_4_to_8(png);
  }
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  return true;
}

// Reads all rows, and what follows them.
bool read_png_rows(PngDecoding* decoding, uint8_t* rows, size_t row_bytes, uint32_t height) {
  if (setjmp(decoding->jump) != 0) return false;
  const int passes = png_set_interlace_handling(decoding->png);
  png_read_update_info(decoding->png, decoding->info);
  if (png_get_rowbytes(decoding->png, decoding->info) != row_bytes) {
    png_error(decoding->png, "rows of another length than the header says");
  }
  for (int pass = 0; pass < passes; ++pass) {
    for (uint32_t y = 0; y < height; ++y) png_read_row(decoding->png, rows + y * row_bytes, nullptr);
  }
  png_read_end(decoding->png, nullptr);
  return true;
}

// A file that is being decoded.
class PngFile {
 public:
  explicit PngFile(std::span<const uint8_t> file) {
    decoding_.next = file.data();
    decoding_.left = file.size();
    decoding_.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoding_, fail_png, ignore_warning);
    if (decoding_.png != nullptr) decoding_.info = png_create_info_struct(decoding_.png);
    if (decoding_.info == nullptr) {
      png_destroy_read_struct(&decoding_.png, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }
  ~PngFile() { png_destroy_read_struct(&decoding_.png, &decoding_.info, nullptr); }
  PngFile(const PngFile&) = delete;
  PngFile& operator=(const PngFile&) = delete;

  StoredImage rows(const PngChunks& chunks) {
    check(start_png(&decoding_));
    const bool color = (chunks.color_type & PNG_COLOR_MASK_COLOR) != 0;
    const bool palette = chunks.color_type == PNG_COLOR_TYPE_PALETTE;
    auto image = stored_image(color && !palette ? 3 : 1, static_cast<int>(chunks.height),
                              static_cast<int>(chunks.width));
    check(read_png_rows(&decoding_, image.values.data(), image.row_bytes(), chunks.height));
    return palette ? colored(image) : image;
  }

 private:
  void check(bool done) const {
    if (done) return;
    if (decoding_.truncated) {
      throw damaged_image("is truncated: it ends before the end of the image");
    }
    throw damaged_image(fmt::format("is damaged: libpng says '{}'", decoding_.problem));
  }

  // The colours of an image of places in the palette.
  StoredImage colored(const StoredImage& places) {
    png_colorp palette = nullptr;
    int count = 0;
    png_get_PLTE(decoding_.png, decoding_.info, &palette, &count);
    auto image = stored_image(3, places.height, places.width);
    uint8_t* out = image.values.data();
    for (const uint8_t place : places.values) {
      if (place >= count) {
        throw damaged_image(
            fmt::format("is damaged: a pixel has color {} of a palette of {}", int{place}, count));
      }
      *out++ = palette[place].red;
      *out++ = palette[place].green;
      *out++ = palette[place].blue;
    }
    return image;
  }

  PngDecoding decoding_ = {};
};

}  // namespace

bool starts_as_png(std::span<const uint8_t> file) {
  return file.size() >= kPngSignature.size() &&
         std::equal(kPngSignature.begin(), kPngSignature.end(), file.begin());
}

ImageInfo png_info(std::span<const uint8_t> start, uint64_t file_bytes) {
  const auto chunks = read_png_chunks(start, file_bytes);
  ImageInfo info{.channels = (chunks.color_type & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1,
                 .height = static_cast<int>(chunks.height),
                 .width = static_cast<int>(chunks.width),
                 .alpha = (chunks.color_type & PNG_COLOR_MASK_ALPHA) != 0 || chunks.transparent_color,
                 .sixteen_bits = chunks.depth == 16,
                 .format = "PNG"};
  if (exchanges_sides(chunks.orientation)) std::swap(info.height, info.width);
  return info;
}

StoredImage decode_png(std::span<const uint8_t> file) {
  const auto chunks = read_png_chunks(file, file.size());
  return upright(PngFile(file).rows(chunks), chunks.orientation);
}

}  // namespace lockstep
