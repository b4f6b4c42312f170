// A digest of files by their names and sizes: what costs no reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Returns the SHA-256, 64 digits, of one line "SIZE NAME\0" per file, in their order. NAME is what the caller
// gives, so that it need not hold the folder above. Two processes with other files have another digest,
// unless files differ in content alone.
class NameDigest {
 public:
  void add(std::string_view name, int64_t size);
  std::string hex() const;

 private:
  std::string lines_;
};

// The same of these files, by their own names, without folders. Throws DataError if one has no size.
std::string digest_of_files(std::span<const std::filesystem::path> files);

}  // namespace lockstep
