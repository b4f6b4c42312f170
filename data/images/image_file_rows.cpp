// Links the rows of decoded_rows.h to the decoders of lockstep_images.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <span>
#include <string>
#include <vector>

#include <lockstep/data/images/decoded_rows.h>
#include <lockstep/data/images/for_each_row.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>
#include <lockstep/support/files/owned_fd.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw DataError(path.string() + " " + what, "make it readable, and leave it in its place while it is used");
}

// Returns the bytes of a regular file. Does not wait for the writer of a pipe.
std::vector<uint8_t> bytes_of_file(const std::filesystem::path& path) {
  const OwnedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    refuse(path, "cannot be read: " + errno_text(errno));
  }
  if (S_ISDIR(status.st_mode)) refuse(path, "is a folder, no image");
  if (!S_ISREG(status.st_mode)) refuse(path, "is not a regular file");
  std::vector<uint8_t> bytes(static_cast<size_t>(status.st_size));
  for (size_t done = 0; done < bytes.size();) {
    const auto count = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(path, "cannot be read: " + errno_text(errno));
    if (count == 0) bytes.resize(done);  // cut meanwhile
    done += static_cast<size_t>(count);
  }
  return bytes;
}

// Returns what `read` makes of these bytes of a file. Its errors begin with the path.
template <class Read>
auto of_bytes(const std::filesystem::path& path, const std::vector<uint8_t>& bytes, const Read& read) {
  try {
    return read(bytes);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{} {}", path.string(), error.message()), error.hint_text());
  }
}

detail::ImageDecoder decoder(const DecodeOptions& options) {
  return [options](const ImageFile& file) { return decode_file(file, options); };
}

}  // namespace

Pixels decode_file(const std::filesystem::path& path, const DecodeOptions& options) {
  return of_bytes(path, bytes_of_file(path), [&](const auto& bytes) { return decode_image(bytes, options); });
}

Pixels decode_file(const ImageFile& file, const DecodeOptions& options) {
  const auto bytes = bytes_of_file(file.path);
  const auto size = static_cast<int64_t>(bytes.size());
  if (file.size >= 0 && size != file.size) {
    throw DataError(fmt::format("{} has changed: it has {} bytes, and had {} when its folder was read",
                                file.path.string(), size, file.size),
                    "leave the files of a data set as they are while it is used, and begin again");
  }
  return of_bytes(file.path, bytes, [&](const auto& all) { return decode_image(all, options); });
}

ImageInfo info_of_file(const std::filesystem::path& path) {
  return of_bytes(path, bytes_of_file(path), [](const auto& bytes) { return image_info(bytes); });
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
