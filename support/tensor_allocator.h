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
// process. Smaller tensors, and all where the folder cannot be written or its disk is full, are as those of
// heap_memory(). An error of the disk ends the process by SIGBUS when it reads the tensor.
TensorAllocator file_memory(std::filesystem::path folder);

}  // namespace lockstep
