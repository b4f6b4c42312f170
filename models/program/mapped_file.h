// A file that is mapped into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include <lockstep/support/files/owned_fd.h>

namespace lockstep::program {

// Throws FormatError if the file cannot be opened, is empty or is not regular. Immutable.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

  // Throws FormatError if the file was changed in place since it was opened: the bytes may be others, or
  // gone.
  void check_unchanged() const;

 private:
  struct State {
    int64_t bytes = 0, seconds = 0, nanoseconds = 0;  // of its last change
    bool operator==(const State&) const = default;
  };
  State state() const;

  OwnedFd fd_;
  State opened_;
  std::span<const std::byte> bytes_;
};

}  // namespace lockstep::program
