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

// Reads and checks all four files. Throws DataError that names the file, what is wrong with it and what to
// do: missing, truncated, wrong magic, type, rank or dimensions, trailing bytes, a gzip checksum, a label
// above 9, or images and labels of different count.
Dataset load_fashion_mnist(const std::filesystem::path& folder);

// One file held against the published data, by the SHA-256 of its decompressed bytes.
struct FileCheck {
  std::filesystem::path path;
  std::string sha256;    // lower-case hex, of the decompressed bytes
  std::string expected;  // the same, of the published file
  bool matches() const { return sha256 == expected; }
};
std::vector<FileCheck> verify_fashion_mnist(const std::filesystem::path& folder);

}  // namespace lockstep
