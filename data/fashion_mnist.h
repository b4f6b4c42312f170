// Fashion-MNIST as it was published.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Where Debian's package dataset-fashion-mnist puts the files.
inline constexpr std::string_view kDebianFashionMnist = "/usr/share/datasets/fashion-mnist";

// One file compared with the published one, by the SHA-256 of its decompressed bytes.
struct FileCheck {
  std::filesystem::path path;
  std::string sha256;    // lower-case hex, of the decompressed bytes
  std::string expected;  // that of the published file
  bool matches() const { return sha256 == expected; }
};

// Returns the checks of the four files that find_idx_files() (data/idx_files.h) finds. Throws DataError for
// a missing or damaged file.
std::vector<FileCheck> verify_fashion_mnist(const std::filesystem::path& folder);

}  // namespace lockstep
