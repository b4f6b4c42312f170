// The bytes of a file, as they are or unpacked by gunzip: which of the two, the file's first bytes say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills `into`; a smaller count than asked for means that the data ends there. The end of gzipped data is
  // reported only where its checksum and length are right and nothing follows it; whatever else is wrong
  // throws DataError.
  virtual size_t read(std::span<std::byte> into) = 0;

  // No more bytes than these can come, known before anything is read.
  virtual uint64_t most_bytes() const = 0;
};

// Throws DataError, which names the file and carries `hint`, for anything but a readable, non-empty, regular
// file.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path, const std::string& hint);

}  // namespace lockstep
