#include <lockstep/app/train/checkpoint/checkpoint_memory.h>

#include <lockstep/app/files/nearest_path.h>

namespace lockstep {

TensorAllocator checkpoint_memory(const std::filesystem::path& folder, int64_t bytes, int64_t free_bytes) {
  return free_bytes == 0 || free_bytes / 2 >= bytes ? heap_memory() : file_memory(folder);
}

bool has_checkpoint_files(const std::filesystem::path& path) { return has_file_memory(nearest_path(path)); }

}  // namespace lockstep
