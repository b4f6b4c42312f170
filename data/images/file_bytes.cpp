#include <lockstep/data/images/file_bytes.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>
#include <lockstep/support/files/file_time.h>
#include <lockstep/support/files/owned_fd.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse_file(const std::filesystem::path& path, const std::string& what) {
  throw DataError(path.string() + " " + what, "make it readable, and leave it in its place while it is used");
}

}  // namespace

FileBytes read_file_bytes(const std::filesystem::path& path, size_t most) {
  const OwnedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    refuse_file(path, "cannot be read: " + errno_text(errno));
  }
  if (S_ISDIR(status.st_mode)) refuse_file(path, "is a folder, no image");
  if (!S_ISREG(status.st_mode)) refuse_file(path, "is not a regular file");
  FileBytes read{.size = status.st_size, .written = nanoseconds(status.st_mtim)};
  read.bytes.resize(std::min(most, static_cast<size_t>(status.st_size)));
  auto& bytes = read.bytes;
  for (size_t done = 0; done < bytes.size();) {
    const auto count = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse_file(path, "cannot be read: " + errno_text(errno));
    if (count == 0) bytes.resize(done);  // cut meanwhile
    done += static_cast<size_t>(count);
  }
  return read;
}

}  // namespace lockstep
