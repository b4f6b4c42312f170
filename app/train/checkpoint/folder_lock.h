// One process at a time writes to a run's folder.
#pragma once

#include <filesystem>

namespace lockstep {

// Holds the lock of a folder while it lives. The kernel releases it when the process ends, however it ends.
class FolderLock {
 public:
  // Throws OutputError if another process holds the lock.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace lockstep
