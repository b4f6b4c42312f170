// Files under a name of their own, on their way to another one.
#pragma once

#include <filesystem>

namespace lockstep {

struct TemporaryFile {
  std::filesystem::path path;
  int fd = -1;  // open for writing, and locked (flock) as long as it is
};

// In this folder, since only within a file system can a file be renamed. Its name says on which host and by
// which process it was made: ".lockstep-HOST-PID-N.tmp". Throws std::system_error.
TemporaryFile create_temporary(const std::filesystem::path& folder);

// Removes what processes that are gone have left in this folder: temporary files of this user, made on this
// host, that nobody holds locked. (The lock of a process on another host may be invisible here, and a process
// number may belong to another process by now.) Never throws: what cannot be looked at stays.
void remove_left_temporaries(const std::filesystem::path& folder) noexcept;

// Both return 0 or what errno says. rename_to_new replaces nothing: EEXIST where there is a file already.
int rename_over(const std::filesystem::path& from, const std::filesystem::path& to);
int rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lockstep
