#include <lockstep/app/files/growing_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include <lockstep/support/files/output_failure.h>
#include <lockstep/support/files/write_all.h>

namespace lockstep {

GrowingFile::GrowingFile(const std::filesystem::path& path, int64_t keep)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666)) {
  struct stat info {};
  if (fd_ < 0 || ::fstat(fd_, &info) != 0) fail(errno);
  size_ = std::min(keep, static_cast<int64_t>(info.st_size));
  if (::ftruncate(fd_, size_) != 0 || ::lseek(fd_, size_, SEEK_SET) < 0) {
    const int error = errno;
    ::close(fd_);
    fail(error);
  }
}

GrowingFile::~GrowingFile() { ::close(fd_); }

void GrowingFile::write(std::string_view text) {
  if (const int error = write_all(fd_, std::as_bytes(std::span(text))).error) {
    if (::ftruncate(fd_, size_) == 0) (void)::lseek(fd_, size_, SEEK_SET);
    fail(error);
  }
  size_ += static_cast<int64_t>(text.size());
}

void GrowingFile::cut(int64_t size) {
  if (size >= size_) return;
  if (::ftruncate(fd_, size) != 0 || ::lseek(fd_, size, SEEK_SET) < 0) fail(errno);
  size_ = size;
}

void GrowingFile::flush_to_disk() const {
  if (::fsync(fd_) != 0) fail(errno);
}

void GrowingFile::fail(int error) const {
  throw output_failure(fmt::format("cannot write '{}'", path_.native()), error);
}

}  // namespace lockstep
