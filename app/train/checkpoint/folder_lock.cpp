#include <lockstep/app/train/checkpoint/folder_lock.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include <lockstep/support/error.h>

namespace lockstep {

FolderLock::FolderLock(const std::filesystem::path& folder)
    : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  // A file system without locks has no protection; that is no reason to stop.
  if (fd_ < 0 || ::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(fd_);
  throw OutputError(fmt::format("another process writes to the run folder '{}'", folder.native()),
                    "wait until it has ended, or name another folder with --output");
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace lockstep
