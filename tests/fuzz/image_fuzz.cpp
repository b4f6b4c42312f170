// Fuzzes PNG and JPEG files. Each input is read as it is, and a PNG also with the checksums that its chunks
// should have, because mutated files almost always have wrong ones. Mutated deflate data keep a wrong
// checksum of their own, which libpng reports behind the pixels.
#include <zlib.h>

#include <optional>
#include <vector>

#include <lockstep/data/images/pixels.h>
#include <lockstep/tests/fuzz/allocations.h>
#include <lockstep/tests/fuzz/harness.h>

using namespace lockstep;
using fuzz::require;

namespace {

constexpr size_t kSignature = 8, kFrame = 12;
constexpr int kSize = 9;

// A byte of a file can stand for 8256 pixels of PNG. Each takes up to 7 bytes at once: a place in the
// palette, three colours, and three of the result. The decoders and their tables take some MiB beside these.
constexpr int64_t kMostPerByte = 8256 * 7, kMostBeside = 48 << 20;

using Bytes = std::vector<uint8_t>;

uint32_t number_at(const Bytes& bytes, size_t at) {
  return uint32_t{bytes[at]} << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 | bytes[at + 3];
}

Bytes with_checksums(Bytes file) {
  for (size_t at = kSignature; file.size() >= at + kFrame;) {
    const size_t length = number_at(file, at);
    if (length > file.size() - at - kFrame) break;
    const auto checksum = static_cast<uint32_t>(crc32(0, &file[at + 4], static_cast<uInt>(length + 4)));
    for (size_t i = 0; i < 4; ++i) {
      file[at + 8 + length + i] = static_cast<uint8_t>(checksum >> (24 - 8 * i));
    }
    at += kFrame + length;
  }
  return file;
}

template <class Code>
bool accepted_within(size_t input_bytes, const Code& code) {
  fuzz::detail::count_allocations();
  const auto before = fuzz::detail::reset_most();
  const bool taken = fuzz::accepted(code);
  require(
      fuzz::detail::most_bytes() - before <= static_cast<int64_t>(input_bytes) * kMostPerByte + kMostBeside,
      "an input takes memory in proportion to its size");
  return taken;
}

void check_pixels(const Pixels& pixels, const DecodeOptions& options) {
  require(pixels.channels == options.channels, "as many channels as were asked for");
  require(pixels.values.size() == static_cast<size_t>(pixels.channels) * static_cast<size_t>(pixels.height) *
                                      static_cast<size_t>(pixels.width),
          "as many values as the shape has");
}

// Decodes the file in all ways, which must agree.
void decode_file(const Bytes& file) {
  std::optional<ImageInfo> info;
  accepted_within(file.size(), [&] { info = image_info(file); });
  Pixels whole;
  const DecodeOptions color{.channels = 3, .size = 0}, grey{.channels = 1, .size = kSize};
  const bool taken = accepted_within(file.size(), [&] { whole = decode_image(file, color); });
  const auto outcome = fuzz::last_outcome;
  require(!taken || info, "a file that can be decoded has a header");
  if (taken) {
    check_pixels(whole, color);
    require(whole.height == info->height && whole.width == info->width, "the size is that of the header");
  }
  Pixels small;
  require(taken == accepted_within(file.size(), [&] { small = decode_image(file, grey); }),
          "grey and colour are taken alike");
  if (taken) {
    check_pixels(small, grey);
    require(small.height == kSize && small.width == kSize, "the size is what was asked for");
    require(decode_image(file, {.channels = 3, .size = kSize}).values == resize_and_crop(whole, kSize).values,
            "resized while decoding as afterwards");
  }
  fuzz::last_outcome = outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes file(data, data + size);
  decode_file(file);
  if (size > kSignature && data[0] == 0x89) decode_file(with_checksums(file));
  return 0;
}
