#include <lockstep/data/digested_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <lockstep/support/files/output_failure.h>
#include <lockstep/support/files/write_all.h>

namespace lockstep {
namespace {

constexpr size_t kPartBytes = 1 << 18;         // still in the core's cache when it is hashed
constexpr uint64_t kWritebackBytes = 4 << 20;  // enough for a disk to be busy

}  // namespace

DigestedFile::DigestedFile(std::filesystem::path path)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail(errno);
}

DigestedFile::~DigestedFile() { ::close(fd_); }

void DigestedFile::fail(int error) const {
  throw output_failure(fmt::format("cannot write '{}'", path_.native()), error);
}

void DigestedFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kPartBytes));
    write_part(part);
    hash_.update(part);
    bytes = bytes.subspan(part.size());
  }
}

void DigestedFile::write_part(std::span<const std::byte> part) {
  if (const int error = write_all(fd_, part).error) fail(error);
  bytes_ += part.size();
  if (bytes_ - begun_ < kWritebackBytes) return;
  // Only a beginning: flush_to_disk() reports what fails.
  (void)::sync_file_range(fd_, static_cast<off_t>(begun_), static_cast<off_t>(bytes_ - begun_),
                          SYNC_FILE_RANGE_WRITE);
  begun_ = bytes_;
}

void DigestedFile::flush_to_disk() {
  if (::fsync(fd_) != 0) fail(errno);
}

}  // namespace lockstep
