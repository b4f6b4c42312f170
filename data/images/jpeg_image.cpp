#include <lockstep/data/images/jpeg_image.h>

#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <cstring>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

#include <jerror.h>
#include <jpeglib.h>

#include <lockstep/data/images/exif.h>

namespace lockstep {
namespace {

// A block of 64 pixels of the channel that is stored in full takes a bit at least, unless it is coded
// arithmetically, where an image of this size would be empty.
constexpr uint64_t kMostPixelsPerByte = 512;
// A progressive file goes over all coefficients once per scan; encoders write about ten.
constexpr int kMostScans = 100;
// For the coefficients of a progressive image: two bytes for each of up to four channels, and some more.
constexpr int64_t kMostBytesPerPixel = 10, kMostOtherBytes = 32 << 20;
constexpr std::string_view kExif("Exif\0\0", 6);

// libjpeg's functions and the ones that it calls back share this. An error of libjpeg jumps to where `jump`
// was set: functions that call libjpeg after that have no objects with destructors, and neither has this.
struct JpegDecoding {
  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  jmp_buf jump;
  int code;
  char problem[JMSG_LENGTH_MAX];
};
static_assert(std::is_trivially_destructible_v<JpegDecoding>);

JpegDecoding& jpeg_decoding(j_common_ptr jpeg) { return *static_cast<JpegDecoding*>(jpeg->client_data); }

[[noreturn]] void fail_jpeg(j_common_ptr jpeg) {
  auto& decoding = jpeg_decoding(jpeg);
  decoding.code = jpeg->err->msg_code;
  jpeg->err->format_message(jpeg, decoding.problem);
  std::longjmp(decoding.jump, 1);
}

// Below 0 stand warnings. All are about damaged data but that of a version that is newer than the library.
void take_jpeg_message(j_common_ptr jpeg, int level) {
  if (level < 0 && jpeg->err->msg_code != JWRN_JFIF_MAJOR) fail_jpeg(jpeg);
}

void print_no_message(j_common_ptr) {}

void limit_scans(j_common_ptr jpeg) {
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMostScans) return;
  auto& decoding = jpeg_decoding(jpeg);
  decoding.code = 0;
  std::snprintf(decoding.problem, sizeof decoding.problem, "more than %d scans", kMostScans);
  std::longjmp(decoding.jump, 1);
}

bool create_jpeg(JpegDecoding* decoding) {
  decoding->jpeg.err = jpeg_std_error(&decoding->errors);
  decoding->errors.error_exit = fail_jpeg;
  decoding->errors.emit_message = take_jpeg_message;
  decoding->errors.output_message = print_no_message;
  decoding->progress.progress_monitor = limit_scans;
  decoding->jpeg.client_data = decoding;
  if (setjmp(decoding->jump) != 0) return false;
  jpeg_create_decompress(&decoding->jpeg);  // keeps err and client_data
  decoding->jpeg.progress = &decoding->progress;
  return true;
}

// Reads up to the first scan.
bool read_jpeg_header(JpegDecoding* decoding, const uint8_t* file, size_t size) {
  if (setjmp(decoding->jump) != 0) return false;
  jpeg_mem_src(&decoding->jpeg, file, size);
  jpeg_save_markers(&decoding->jpeg, JPEG_APP0 + 1, 0xffff);
  jpeg_read_header(&decoding->jpeg, TRUE);
  return true;
}

// Reads all rows, and what follows them.
bool read_jpeg_rows(JpegDecoding* decoding, J_COLOR_SPACE colors, uint8_t* rows, size_t row_bytes) {
  if (setjmp(decoding->jump) != 0) return false;
  auto* jpeg = &decoding->jpeg;
  jpeg->out_color_space = colors;
  jpeg_start_decompress(jpeg);
  while (jpeg->output_scanline < jpeg->output_height) {
    JSAMPROW row = rows + jpeg->output_scanline * row_bytes;
    jpeg_read_scanlines(jpeg, &row, 1);
  }
  jpeg_finish_decompress(jpeg);
  return true;
}

// a * b / 255, rounded, for bytes.
int byte_product(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

// Pillow's conversion. The bytes are inverted: 255 stands for no ink.
StoredImage from_cmyk(const StoredImage& inks) {
  auto image = stored_image(3, inks.height, inks.width);
  uint8_t* out = image.values.data();
  for (size_t i = 0; i < inks.values.size(); i += 4) {
    const int white = inks.values[i + 3];
    for (size_t c = 0; c < 3; ++c) {
      *out++ =
          static_cast<uint8_t>(std::clamp(white - byte_product(255 - inks.values[i + c], white), 0, 255));
    }
  }
  return image;
}

// A file that is being decoded, from its header on.
class JpegFile {
 public:
  JpegFile(std::span<const uint8_t> file, uint64_t file_bytes) {
    try {
      check(create_jpeg(&decoding_));
      check(read_jpeg_header(&decoding_, file.data(), file.size()));
      check_header(file_bytes);
    } catch (...) {
      jpeg_destroy_decompress(&decoding_.jpeg);
      throw;
    }
  }
  ~JpegFile() { jpeg_destroy_decompress(&decoding_.jpeg); }
  JpegFile(const JpegFile&) = delete;
  JpegFile& operator=(const JpegFile&) = delete;

  int height() const { return static_cast<int>(decoding_.jpeg.image_height); }
  int width() const { return static_cast<int>(decoding_.jpeg.image_width); }
  int components() const { return decoding_.jpeg.num_components; }

  int orientation() const {
    for (auto* marker = decoding_.jpeg.marker_list; marker != nullptr; marker = marker->next) {
      const std::span<const uint8_t> data(marker->data, marker->data_length);
      if (data.size() >= kExif.size() && std::memcmp(data.data(), kExif.data(), kExif.size()) == 0) {
        return exif_orientation(data.subspan(kExif.size()));
      }
    }
    return kUpright;
  }

  StoredImage rows() {
    auto image = stored_image(components(), height(), width());
    const auto colors = components() == 1 ? JCS_GRAYSCALE : components() == 3 ? JCS_RGB : JCS_CMYK;
    check(read_jpeg_rows(&decoding_, colors, image.values.data(), image.row_bytes()));
    return components() == 4 ? from_cmyk(image) : image;
  }

 private:
  void check_header(uint64_t file_bytes) {
    const auto& jpeg = decoding_.jpeg;
    check_image_size(jpeg.image_height, jpeg.image_width, file_bytes, file_bytes * kMostPixelsPerByte);
    if (jpeg.data_precision != 8) {
      throw unfit_image(fmt::format("has {} bits per channel, 8 were expected", jpeg.data_precision));
    }
    if (jpeg.num_components != 1 && jpeg.num_components != 3 && jpeg.num_components != 4) {
      throw unfit_image(fmt::format("has {} channels, 1, 3 or 4 were expected", jpeg.num_components));
    }
    const int64_t pixels = int64_t{jpeg.image_height} * jpeg.image_width;
    decoding_.jpeg.mem->max_memory_to_use = static_cast<long>(kMostOtherBytes + kMostBytesPerPixel * pixels);
  }

  void check(bool done) const {
    if (done) return;
    const auto code = decoding_.code;
    if (code == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
    if (code == JWRN_JPEG_EOF || code == JERR_INPUT_EOF) {
      throw damaged_image("is truncated: it ends before the end of the image");
    }
    if (code == JERR_BAD_PRECISION || code == JERR_SOF_UNSUPPORTED) {
      throw unfit_image(fmt::format("cannot be decoded: libjpeg says '{}'", decoding_.problem));
    }
    throw damaged_image(fmt::format("is damaged: libjpeg says '{}'", decoding_.problem));
  }

  JpegDecoding decoding_ = {};
};

}  // namespace

bool starts_as_jpeg(std::span<const uint8_t> file) {
  return file.size() >= 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff;
}

ImageInfo jpeg_info(std::span<const uint8_t> start, uint64_t file_bytes) {
  const JpegFile file(start, file_bytes);
  ImageInfo info{
      .channels = file.components(), .height = file.height(), .width = file.width(), .format = "JPEG"};
  if (exchanges_sides(file.orientation())) std::swap(info.height, info.width);
  return info;
}

StoredImage decode_jpeg(std::span<const uint8_t> bytes) {
  JpegFile file(bytes, bytes.size());
  return upright(file.rows(), file.orientation());
}

}  // namespace lockstep
