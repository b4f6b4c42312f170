// Output files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace lockstep {

// Writes to a temporary file in the same folder; commit() gives it its name. So `path` always has either the
// old file or the whole new one. Without commit() the destructor removes the temporary file. A replaced file
// keeps its permissions, and a link stays a link. Temporary files of killed processes are removed when the
// next file is written in that folder. Not thread-safe.
//
// A device or a pipe (/dev/stderr) is opened at once and written directly.
class AtomicFile {
 public:
  // Throws OutputError if the file cannot be written: it exists and `overwrite` is false, it is a folder, its
  // folder does not exist, ... Construct and destroy an object to check a path; that changes nothing.
  AtomicFile(const std::filesystem::path& path, bool overwrite);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. When it throws OutputError, such as for a full disk, nothing has been appended.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  // Writes the content to the disk and gives the file its name. Call it once; later write()s append to the
  // named file. Throws OutputError, also if another file has appeared under the name and `overwrite` is
  // false.
  void commit();

 private:
  void create();
  void discard();
  void undo_write(size_t bytes);

  const std::filesystem::path path_;  // as given to the constructor
  const bool overwrite_;
  const std::filesystem::path target_;  // links followed
  const bool regular_;                  // neither a device nor a pipe
  std::filesystem::path temporary_;     // empty before the first write() and after commit()
  int fd_ = -1;
};

// Throws OutputError if `path` is a device or a pipe. For files that are read again.
void need_regular_file(const std::filesystem::path& path);

}  // namespace lockstep
