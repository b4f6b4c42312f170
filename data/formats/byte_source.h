// Reads the bytes of a plain or gzipped file. The first bytes of the file say which of the two it is.
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

  // Fills `into`. Returns a smaller count than asked for at the end of the data. Throws DataError for damaged
  // data; the end of gzipped data is returned only if its checksums and lengths are right and nothing follows
  // it. Several members, one behind the other, are one text, as for gzip.
  virtual size_t read(std::span<std::byte> into) = 0;

  // The most bytes that can come, known before reading.
  virtual uint64_t most_bytes() const = 0;
};

// Opens a file. Throws DataError, which names the file and carries `hint`, unless it is readable, not empty
// and regular.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path, const std::string& hint);

// The same for formats whose first bytes may be any, and so those of gzip.
std::unique_ptr<ByteSource> open_plain_bytes(const std::filesystem::path& path, const std::string& hint);

}  // namespace lockstep
