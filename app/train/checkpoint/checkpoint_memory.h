// Where the tensors of a checkpoint are while it is written or read.
#pragma once

#include <cstdint>
#include <filesystem>

#include <lockstep/app/machine/memory_usage.h>
#include <lockstep/support/tensor_allocator.h>

namespace lockstep {

// Returns heap_memory() if twice so many bytes are free, or nobody knows, else file_memory() of the folder.
// free_bytes: 0: unknown.
TensorAllocator checkpoint_memory(const std::filesystem::path& folder, int64_t bytes,
                                  int64_t free_bytes = available_bytes());

// Returns true if checkpoint_memory() has files there where memory is short. path: of the folder, which may
// not be there yet: then the nearest one above it tells.
bool has_checkpoint_files(const std::filesystem::path& path);

}  // namespace lockstep
