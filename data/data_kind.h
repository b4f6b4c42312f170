// Finds out what a path holds.
#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep {

enum class DataKind { kIdx, kCifar10, kCifar100, kImageFolder, kTensorFile };

// "IDX", "CIFAR-10", "CIFAR-100", "image folder" or "safetensors".
std::string_view to_string(DataKind kind);

// Looks at names, and opens no file. In this order: a name that ends with .safetensors and is no folder's;
// IDX files (idx_files.h); CIFAR's binary files; class folders with an image in one
// (images/image_files.h). The loader of the kind says what is wrong with its files. Throws DataError, which
// says what was looked for and what is there, for anything else, and for a path that cannot be read.
DataKind kind_of(const std::filesystem::path& path);

}  // namespace lockstep
