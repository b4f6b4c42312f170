// Reads an image's file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

namespace lockstep {

struct FileBytes {
  std::vector<uint8_t> bytes = {};
  int64_t size = 0;     // of the whole file
  int64_t written = 0;  // when it was last written: nanoseconds since 1970
};

// Returns the first bytes of a regular file, `most` of them, or all. Does not wait for the writer of a pipe.
// Throws DataError, which begins with the path.
FileBytes read_file_bytes(const std::filesystem::path& path,
                          size_t most = std::numeric_limits<size_t>::max());

}  // namespace lockstep
