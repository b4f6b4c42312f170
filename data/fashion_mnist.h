// Fashion-MNIST: four IDX files, gzipped or plain, in one folder.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/data/dataset.h>

namespace lockstep {

// Where Debian's package dataset-fashion-mnist puts the files.
inline constexpr std::string_view kDebianFashionMnist = "/usr/share/datasets/fashion-mnist";

// Reads and checks all four files. Throws DataError, which names the file, what is wrong with it and what to
// do: a missing or truncated file, a wrong magic number, type, rank or dimension, trailing bytes, a wrong
// gzip checksum, a label above 9, or different numbers of images and labels.
Dataset load_fashion_mnist(const std::filesystem::path& folder);

// One file compared with the published one, by the SHA-256 of its decompressed bytes.
struct FileCheck {
  std::filesystem::path path;
  std::string sha256;    // lower-case hex, of the decompressed bytes
  std::string expected;  // that of the published file
  bool matches() const { return sha256 == expected; }
};

// Returns the checks of all four files. Throws DataError for a missing or damaged file.
std::vector<FileCheck> verify_fashion_mnist(const std::filesystem::path& folder);

}  // namespace lockstep
