// Links the rows of decoded_rows.h to the decoders of lockstep_images.
#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <ios>
#include <span>
#include <vector>

#include <lockstep/data/images/decoded_rows.h>
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

detail::ImageDecoder decoder(const DecodeOptions& options) {
  return [options](const std::filesystem::path& path) { return decode_file(path, options); };
}

}  // namespace

Pixels decode_file(const std::filesystem::path& path, const DecodeOptions& options) {
  const auto bytes = bytes_of_file(path);
  try {
    return decode_image(bytes, options);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{} {}", path.string(), error.message()), error.hint_text());
  }
}

DataRows resident_image_rows(const std::vector<ImageFile>& files, const DecodeOptions& options, int workers) {
  return detail::resident_image_rows(files, decoder(options), workers);
}

DataRows streamed_image_rows(const std::vector<ImageFile>& files, const DecodeOptions& options,
                             const StreamOptions& stream) {
  return detail::streamed_image_rows(files, decoder(options), stream);
}

}  // namespace lockstep
