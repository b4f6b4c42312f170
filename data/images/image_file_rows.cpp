// Links the rows of decoded_rows.h to the decoders of lockstep_images.
#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <ios>
#include <span>
#include <vector>

#include <lockstep/data/images/decoded_rows.h>
#include <lockstep/data/images/for_each_row.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>

namespace lockstep {
namespace {

std::vector<uint8_t> bytes_of_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw DataError(path.string() + " is a folder, no image");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  std::vector<uint8_t> bytes(size > 0 ? static_cast<size_t>(size) : 0);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (size >= 0 && file) return bytes;
  throw DataError(fmt::format("{} cannot be read: {}", path.string(), errno_text(errno)));
}

// Returns what `read` makes of the file's bytes. Its errors begin with the path.
template <class Read>
auto of_file(const std::filesystem::path& path, const Read& read) {
  const auto bytes = bytes_of_file(path);
  try {
    return read(bytes);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{} {}", path.string(), error.message()), error.hint_text());
  }
}

detail::ImageDecoder decoder(const DecodeOptions& options) {
  return [options](const std::filesystem::path& path) { return decode_file(path, options); };
}

}  // namespace

Pixels decode_file(const std::filesystem::path& path, const DecodeOptions& options) {
  return of_file(path, [&](const auto& bytes) { return decode_image(bytes, options); });
}

ImageInfo info_of_file(const std::filesystem::path& path) {
  return of_file(path, [](const auto& bytes) { return image_info(bytes); });
}

bool all_grey(const std::vector<ImageFile>& files, int workers) {
  std::atomic<bool> grey = true;
  for_each_row(static_cast<int64_t>(files.size()), workers, [&](int64_t row) {
    if (grey && info_of_file(files[static_cast<size_t>(row)].path).channels != 1) grey = false;
  });
  return grey;
}

DataRows resident_image_rows(const std::vector<ImageFile>& files, const DecodeOptions& options, int workers) {
  return detail::resident_image_rows(files, decoder(options), workers);
}

DataRows streamed_image_rows(const std::vector<ImageFile>& files, const DecodeOptions& options,
                             const StreamOptions& stream) {
  return detail::streamed_image_rows(files, decoder(options), stream);
}

}  // namespace lockstep
