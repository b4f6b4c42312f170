// Files that are refused: what they are, and that no part of a damaged one passes.
#include <lockstep/tests/catch.h>
#include <zlib.h>

#include <string>
#include <string_view>

#include <lockstep/data/images/pixels.h>
#include <lockstep/tests/data/images/image_reference.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using namespace std::string_view_literals;

namespace {

using Bytes = std::vector<uint8_t>;

Bytes bytes(std::string_view text) { return {text.begin(), text.end()}; }

std::string refused(const Bytes& file) {
  return refusal_of<DataError>([&] { decode_image(file, {}); });
}

void put_number(Bytes& file, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) file[at + i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

// Puts the right checksum behind the header of a PNG file, which a test has changed.
Bytes with_checksum(Bytes file) {
  put_number(file, 29, static_cast<uint32_t>(crc32(0, &file[12], 17)));
  return file;
}

Bytes png_of_size(uint32_t width, uint32_t height) {
  auto file = image_file("png_type_0_bits_8");
  put_number(file, 16, width);
  put_number(file, 20, height);
  return with_checksum(file);
}

size_t place_of(const Bytes& file, std::string_view text) {
  return std::string_view(reinterpret_cast<const char*>(file.data()), file.size()).find(text);
}

// A JPEG whose header says this size: that of its frame, after the marker, length and precision.
Bytes jpeg_of_size(const std::string& name, std::string_view marker, uint16_t height, uint16_t width) {
  auto file = image_file(name);
  const size_t at = place_of(file, marker) + 5;
  put_number(file, at, static_cast<uint32_t>(height) << 16 | width);
  return file;
}

Bytes changed(const std::string& name, size_t at, uint8_t value) {
  auto file = image_file(name);
  file.at(at) = value;
  return with_checksum(file);
}

}  // namespace

TEST_CASE("other formats are refused by their names") {
  struct Row {
    std::string_view file, words;
  };
  for (const auto& [file, words] :
       {Row{"", "is empty"}, Row{"GIF89a", "is a GIF file, PNG or JPEG was expected"},
        Row{"\0\0\0\x18"
            "ftypheic"sv,
            "is a HEIF file, PNG or JPEG was expected"},
        Row{"\0\0\0\x18"
            "ftypmp42"sv,
            "is a video (MP4 or its like), PNG"},
        Row{"PK\x03\x04", "is a ZIP archive or a file of NumPy or PyTorch, PNG"},
        Row{"version https://git-lfs.github.com/spec/v1", "'git lfs pull' brings the file"},
        Row{"RIFF\0\0\0\0WEBPVP8 "sv, "is a WebP file"}, Row{"II*\0\0"sv, "is a TIFF file"},
        Row{"MM\0*\0"sv, "is a TIFF file"}, Row{"BM\0\0"sv, "is a BMP file"},
        Row{"\0\0\0\x20"
            "ftypavif"sv,
            "is an AVIF file"},
        Row{"P6 1 1", "is a Netpbm file"}, Row{"<svg>", "is an SVG file"},
        Row{"text", "is not a PNG or JPEG file: it starts with bytes 74 65 78 74"},
        Row{"\xff", "starts with bytes ff"}, Row{"\x89PNG\r\n", "starts with bytes 89 50 4e 47"}}) {
    INFO(words);
    CHECK_THAT(refused(bytes(file)), ContainsSubstring(std::string(words)));
    CHECK_THAT(refusal_of<DataError>([&] { image_info(bytes(file)); }),
               ContainsSubstring(std::string(words)));
  }
}

TEST_CASE("a file that is cut anywhere is refused") {
  for (const std::string name : {"png_type_2_bits_8", "png_type_3_bits_4_interlaced", "jpeg_420",
                                 "jpeg_progressive", "jpeg_grey", "jpeg_cmyk", "jpeg_restarts"}) {
    const auto whole = image_file(name);
    for (size_t size = 0; size < whole.size(); ++size) {
      INFO(name << " cut to " << size << " of " << whole.size());
      const auto words = refused({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)});
      CHECK(words.starts_with(size == 0 ? "is " : size < 8 ? "is " : "is truncated: "));
    }
  }
}

TEST_CASE("damage is refused, also where libpng and libjpeg only warn") {
  auto unchecked = image_file("png_type_2_bits_8");
  unchecked[45] ^= 1;  // in the pixels
  CHECK_THAT(refused(unchecked), ContainsSubstring("is damaged: libpng says 'IDAT: "));
  const auto palette = image_file("png_type_3_bits_4");
  auto fewer = palette;
  const size_t at = place_of(fewer, "PLTE") - 4;
  put_number(fewer, at, 6);  // two colours of sixteen
  fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(at) + 14,
              fewer.begin() + static_cast<ptrdiff_t>(at) + 8 + 48);
  put_number(fewer, at + 14, static_cast<uint32_t>(crc32(0, &fewer[at + 4], 10)));
  CHECK_THAT(refused(fewer), ContainsSubstring("of a palette of 2"));
  CHECK_THAT(refused(changed("png_type_0_bits_8", 25, 5)), ContainsSubstring("color type 5"));
  CHECK_THAT(refused(changed("png_type_0_bits_8", 24, 3)), ContainsSubstring("3 bits, 1, 2, 4, 8 or 16"));
  CHECK_THAT(refused(changed("png_type_2_bits_8", 24, 4)), ContainsSubstring("is damaged: libpng says"));
  CHECK_THAT(refused(changed("png_type_2_bits_8", 12, 'X')), ContainsSubstring("another chunk than IHDR"));

  auto jpeg = image_file("jpeg_grey");
  jpeg.insert(jpeg.end() - 2, 40, uint8_t{0x11});  // libjpeg warns of these
  CHECK_THAT(refused(jpeg), ContainsSubstring("is damaged: libjpeg says"));
  auto zeros = image_file("jpeg_420");
  std::fill(zeros.end() - 60, zeros.end() - 2, uint8_t{0xff});
  CHECK(refused(zeros) != "");
  auto twelve = image_file("jpeg_grey");
  twelve[place_of(twelve, "\xff\xc0\0\x0b"sv) + 4] = 12;
  CHECK_THAT(refused(twelve), ContainsSubstring("12"));
}

TEST_CASE("a size that the file cannot hold is refused before memory is allocated") {
  // The sizes are empty, larger than what is taken, and larger than what deflate and a JPEG can hold.
  CHECK_THAT(refused(png_of_size(0, 5)), ContainsSubstring("5 x 0 pixels, at least 1 x 1"));
  CHECK_THAT(refused(png_of_size(7, 0x7fffffff)), ContainsSubstring("has 2147483647 x 7 pixels, at most"));
  CHECK_THAT(refused(png_of_size(0xffffffff, 0xffffffff)), ContainsSubstring("has 4294967295 x 4294967295"));
  CHECK_THAT(refused(png_of_size(20'000, 20'000)), ContainsSubstring("at most 134217728"));
  const auto file = png_of_size(10'000, 10'000);
  CHECK(refused(file) == "is truncated: its header promises 10000 x 10000 pixels, a file of " +
                             std::to_string(file.size()) + " bytes can hold " +
                             std::to_string(file.size() * 1032) + " at most");
  CHECK_THAT(refusal_of<DataError>([&] { image_info(file); }), ContainsSubstring("is truncated: "));
  for (const auto& jpeg : {jpeg_of_size("jpeg_420", "\xff\xc0\0\x11"sv, 10'000, 10'000),
                           jpeg_of_size("jpeg_progressive", "\xff\xc2\0\x11"sv, 10'000, 10'000)}) {
    CHECK_THAT(refused(jpeg), ContainsSubstring("is truncated: its header promises 10000 x 10000 pixels"));
  }
  CHECK_THAT(refused(jpeg_of_size("jpeg_420", "\xff\xc0\0\x11"sv, 65'000, 65'000)),
             ContainsSubstring("at most 134217728"));
  CHECK_THAT(refused(bytes("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"sv)),
             ContainsSubstring("is truncated: it has 16"));
}
