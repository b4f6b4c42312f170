// A file that is there whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace lockstep {

// Written under another name beside its own, which it gets when it is whole; gone with the object otherwise.
// So there is under `path` at any moment either what was there before or the whole new file. A file that is
// replaced hands its permissions on, and a link stays a link. What a process that was killed has left beside
// it goes when the next file is written in that folder.
//
// A device or a pipe (/dev/stderr) has no name to keep free: it is opened at once and written directly.
class AtomicFile {
 public:
  // Throws OutputError: the file exists and `overwrite` is not set, it is a folder, its folder does not
  // exist, ... Constructed and dropped, it tells whether the file could be written and leaves everything as
  // it is.
  AtomicFile(const std::filesystem::path& path, bool overwrite);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends; all of it, or nothing where it throws OutputError (disk full).
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  // Once: hands the content to the disk, then gives the file its name. What is written afterwards is added to
  // it there. Throws OutputError, also where a file has appeared meanwhile that is not to be replaced.
  void put_in_place();

 private:
  void create();
  void drop();
  void take_back(size_t bytes);

  const std::filesystem::path path_;  // as it was asked for
  const bool overwrite_;
  const std::filesystem::path target_;  // links followed
  const bool regular_;                  // neither a device nor a pipe
  std::filesystem::path temporary_;     // empty before the first byte, and once the file has its name
  int fd_ = -1;
};

// Throws OutputError for a device or a pipe: where what is written is to be found again.
void need_regular_file(const std::filesystem::path& path);

}  // namespace lockstep
