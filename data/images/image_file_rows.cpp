// Links the rows of decoded_rows.h to the decoders of lockstep_images.
#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include <lockstep/data/images/decoded_rows.h>
#include <lockstep/data/images/file_bytes.h>
#include <lockstep/data/images/for_each_row.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// Returns what `read` makes of these bytes of a file. Its errors begin with the path.
template <class Read>
auto of_bytes(const std::filesystem::path& path, const std::vector<uint8_t>& bytes, const Read& read) {
  try {
    return read(bytes);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{} {}", path.string(), error.message()), error.hint_text());
  }
}

// "2026-01-31 23:59:59.123456789 UTC"
std::string time_text(int64_t nanoseconds) {
  constexpr int64_t kPerSecond = 1'000'000'000;
  const auto fraction = (nanoseconds % kPerSecond + kPerSecond) % kPerSecond;
  const auto seconds = static_cast<std::time_t>((nanoseconds - fraction) / kPerSecond);
  std::tm time = {};
  ::gmtime_r(&seconds, &time);
  return fmt::format("{}-{:02}-{:02} {:02}:{:02}:{:02}.{:09} UTC", 1900 + time.tm_year, time.tm_mon + 1,
                     time.tm_mday, time.tm_hour, time.tm_min, time.tm_sec, fraction);
}

// Throws DataError for a file that is not as it was found.
void check_unchanged(const ImageFile& file, const FileBytes& read) {
  const auto refuse = [&](const std::string& what) {
    throw DataError(fmt::format("{} has changed: {} when its folder was read", file.path.string(), what),
                    "leave the files of a data set as they are while it is used, and begin again");
  };
  const auto size = static_cast<int64_t>(read.bytes.size());
  if (file.size >= 0 && size != file.size) {
    refuse(fmt::format("it has {} bytes, and had {}", size, file.size));
  }
  if (file.written >= 0 && read.written != file.written) {
    refuse(fmt::format("it was written at {}, and had been at {}", time_text(read.written),
                       time_text(file.written)));
  }
}

// Reads the beginning of the file, or all of it where that does not tell.
int channels_of_file(const std::filesystem::path& path) {
  constexpr size_t kBeginning = 32 << 10;
  auto file = read_file_bytes(path, kBeginning);
  if (const auto size = static_cast<uint64_t>(file.size); file.bytes.size() < size) {
    try {
      return image_info(file.bytes, size).channels;
    } catch (const DataError&) {  // its header may be longer
      file = read_file_bytes(path);
    }
  }
  return of_bytes(path, file.bytes, [](const auto& bytes) { return image_info(bytes); }).channels;
}

detail::ImageDecoder decoder(const DecodeOptions& options) {
  return [options](const ImageFile& file) { return decode_file(file, options); };
}

}  // namespace

Pixels decode_file(const std::filesystem::path& path, const DecodeOptions& options) {
  const auto file = read_file_bytes(path);
  return of_bytes(path, file.bytes, [&](const auto& bytes) { return decode_image(bytes, options); });
}

Pixels decode_file(const ImageFile& file, const DecodeOptions& options) {
  const auto read = read_file_bytes(file.path);
  check_unchanged(file, read);
  return of_bytes(file.path, read.bytes, [&](const auto& all) { return decode_image(all, options); });
}

ImageInfo info_of_file(const std::filesystem::path& path) {
  return of_bytes(path, read_file_bytes(path).bytes, [](const auto& bytes) { return image_info(bytes); });
}

bool all_grey(const ImageList& files, int workers) {
  std::atomic<bool> grey = true;
  for_each_row(static_cast<int64_t>(files.size()), workers, [&](int64_t row) {
    if (grey && channels_of_file(files[static_cast<size_t>(row)].path) != 1) grey = false;
  });
  return grey;
}

DataRows resident_image_rows(const ImageList& files, const DecodeOptions& options, int workers) {
  return detail::resident_image_rows(files, decoder(options), workers);
}

DataRows streamed_image_rows(const ImageList& files, const DecodeOptions& options,
                             const StreamOptions& stream) {
  return detail::streamed_image_rows(files, decoder(options), stream);
}

}  // namespace lockstep
