// The binary form of CIFAR-10 and CIFAR-100: records of one label, or of a coarse and a fine one, and the
// pixels of 3 channels of 32 x 32, a byte each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace lockstep {

inline constexpr int64_t kCifarChannels = 3, kCifarSide = 32;
inline constexpr int64_t kCifarPixels = kCifarChannels * kCifarSide * kCifarSide;  // 3,072

// Where the files are.
struct CifarFiles {
  std::vector<std::filesystem::path> train = {};  // at least one
  std::filesystem::path test = {};
  std::filesystem::path names = {};  // batches.meta.txt or fine_label_names.txt; empty: it is missing
  int label_bytes = 1;               // in a record; the last one is the label
  int64_t classes = 10;              // where no names say so
};

// Returns whether the folder, or its cifar-10-batches-bin/, holds a data_batch_N.bin or a test_batch.bin.
bool holds_cifar10(const std::filesystem::path& folder);

// Returns whether the folder, or its cifar-100-binary/, holds a train.bin or test.bin. Both files must be in
// a folder of this name, or beside fine_label_names.txt, since others use these names, too.
bool holds_cifar100(const std::filesystem::path& folder);

// Finds data_batch_1.bin, data_batch_2.bin, ... in order of their numbers, and test_batch.bin; or train.bin
// and test.bin. Throws DataError for a missing file, a gap in the numbers, both data sets in one folder, or
// neither.
CifarFiles find_cifar_files(const std::filesystem::path& folder);

// Returns the number of records, at least 1. Throws DataError for a file that cannot be read, is empty or
// ends within a record.
int64_t cifar_rows(const std::filesystem::path& file, int label_bytes);

// Reads all records: images (rows, 3, 32, 32) and labels (rows), where rows is what cifar_rows() has
// returned. Throws DataError for a file that has changed since.
void read_cifar(const std::filesystem::path& file, int label_bytes, std::span<uint8_t> images,
                std::span<uint8_t> labels);

}  // namespace lockstep
