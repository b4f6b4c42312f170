// A file that is there whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace lockstep {

// Written under another name beside its own, which it gets when it is whole; gone with the object otherwise.
// So there is under `path` at any moment either what was there before or the whole new file. A file that is
// replaced hands its permissions on, and a link stays a link.
class NewFile {
 public:
  // Throws OutputError: the file exists and `overwrite` is not set, it is a folder or a device, its folder
  // does not exist, ... Constructed and dropped, it tells whether the file could be written and leaves
  // everything as it is.
  NewFile(const std::filesystem::path& path, bool overwrite);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // Appends. Throws OutputError (disk full).
  void write(std::span<const std::byte> bytes);

  // Once, last: hands the content to the disk, then gives the file its name. Throws OutputError.
  void put_in_place();

 private:
  int create();

  const std::filesystem::path path_;    // as it was asked for
  const std::filesystem::path target_;  // links followed
  std::filesystem::path temporary_;     // empty once it has its name
  const int fd_;
};

}  // namespace lockstep
