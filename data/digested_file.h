// A new file of a checkpoint: its SHA-256 is computed while it is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/support/files/sha256.h>

namespace lockstep {

struct FileDigest {
  uint64_t bytes = 0;
  std::string sha256;
};

// For files in a temporary folder, which is removed as a whole after an error. The disk begins to write while
// the file grows, so that flush_to_disk() has little to wait for. Functions throw OutputError.
class DigestedFile {
 public:
  explicit DigestedFile(std::filesystem::path path);  // which must not exist
  ~DigestedFile();
  DigestedFile(const DigestedFile&) = delete;
  DigestedFile& operator=(const DigestedFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  // Waits until the content is on the disk. Call it when all is written.
  void flush_to_disk();

  // The digest of all that was written. Call it once.
  FileDigest digest() { return {.bytes = bytes_, .sha256 = hash_.hex()}; }

 private:
  [[noreturn]] void fail(int error) const;
  void write_part(std::span<const std::byte> part);

  const std::filesystem::path path_;
  const int fd_;
  uint64_t bytes_ = 0;
  uint64_t begun_ = 0;  // bytes that the disk has been told to write
  Sha256 hash_;
};

}  // namespace lockstep
