// Memory for copies of tensors on the host: that of the process, or a file that the kernel can write to the
// disk when memory gets short.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <functional>

namespace lockstep {

// Returns a contiguous tensor on the host. Its values are not set.
using TensorAllocator = std::function<torch::Tensor(torch::IntArrayRef shape, torch::ScalarType dtype)>;

// That of the process.
TensorAllocator heap_memory();

// A file without a name in this folder for each tensor of at least 1 MiB. Such a tensor takes room on the
// disk, and memory only as long as the kernel has some to spare. The file ends with its tensor, or with the
// process. All files together leave room on the disk for as much again: for the tensors' own file. Smaller
// tensors, and those for which there is no such room, are as those of heap_memory(); so are all where the
// folder cannot be written, or its file system cannot set room aside (NFS before 4.2). An error of the disk
// ends the process by SIGBUS when it uses the tensor. Thread-safe.
TensorAllocator file_memory(std::filesystem::path folder);

// Returns true if tensors of file_memory() have files there that are not memory themselves (tmpfs).
bool has_file_memory(const std::filesystem::path& folder);

}  // namespace lockstep
