#include <lockstep/models/program/mapped_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include <lockstep/models/program/format_error.h>
#include <lockstep/support/files/errno_text.h>

namespace lockstep::program {

MappedFile::MappedFile(const std::filesystem::path& path)
    : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_.get() < 0) throw FormatError("cannot be opened: " + errno_text(errno));
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) throw FormatError("cannot be read: " + errno_text(errno));
  if (!S_ISREG(status.st_mode)) throw FormatError("is no regular file");
  opened_ = state();
  if (opened_.bytes == 0) throw FormatError("is empty");
  const auto size = static_cast<size_t>(opened_.bytes);
  void* const begin = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd_.get(), 0);
  if (begin == MAP_FAILED) throw FormatError("cannot be mapped: " + errno_text(errno));
  bytes_ = {static_cast<const std::byte*>(begin), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::State MappedFile::state() const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) throw FormatError("cannot be read: " + errno_text(errno));
  return {status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

void MappedFile::check_unchanged() const {
  const auto now = state();
  if (now == opened_) return;
  throw FormatError(
      fmt::format("was changed while it was in use: it had {} bytes and has {}", opened_.bytes, now.bytes),
      "write another file, or replace it by rename");
}

}  // namespace lockstep::program
