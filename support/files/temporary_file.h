// Temporary files and folders that are renamed when they are complete.
#pragma once

#include <filesystem>

namespace lockstep {

struct TemporaryFile {
  std::filesystem::path path;
  int fd = -1;  // open for reading and writing, and locked (flock) until it is closed
};

// Creates ".lockstep-HOST-PID-N.tmp" in this folder, so that it can be renamed to another name there. The
// caller closes fd. Throws std::system_error.
TemporaryFile create_temporary(const std::filesystem::path& folder);

// The same for a folder ".lockstep-HOST-PID-N.tmp"; fd is open for reading.
TemporaryFile create_temporary_folder(const std::filesystem::path& folder);

// Returns true if a file or folder of this name is a temporary one, of any host and process.
bool is_temporary(const std::filesystem::path& name);

// Removes temporary files and folders of dead processes from this folder: those of this user and host that no
// process has locked. (Locks of other hosts may be invisible here, and a process id may be in use again.)
// Skips files that it cannot open.
void remove_stale_temporaries(const std::filesystem::path& folder) noexcept;

// Writes the names in this folder to the disk. Errors are ignored: some file systems cannot, and a crash
// would only leave older names.
void fsync_folder(const std::filesystem::path& folder) noexcept;

// Rename a file; return 0 or errno. rename_to_new() never replaces a file: it returns EEXIST if there is one.
int rename_over(const std::filesystem::path& from, const std::filesystem::path& to);
int rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lockstep
