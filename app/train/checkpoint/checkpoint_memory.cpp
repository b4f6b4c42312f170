#include <lockstep/app/train/checkpoint/checkpoint_memory.h>

#include <system_error>

namespace lockstep {
namespace {

std::filesystem::path nearest_folder(const std::filesystem::path& path) {
  std::error_code error;
  auto nearest = std::filesystem::weakly_canonical(path, error);
  if (error) return ".";
  while (!std::filesystem::is_directory(nearest, error) && nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  return nearest;
}

}  // namespace

TensorAllocator checkpoint_memory(const std::filesystem::path& folder, int64_t bytes, int64_t free_bytes) {
  return free_bytes == 0 || free_bytes / 2 >= bytes ? heap_memory() : file_memory(folder);
}

bool has_checkpoint_files(const std::filesystem::path& path) { return has_file_memory(nearest_folder(path)); }

}  // namespace lockstep
