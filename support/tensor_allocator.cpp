#include <lockstep/support/tensor_allocator.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include <lockstep/support/files/temporary_file.h>

namespace lockstep {
namespace {

constexpr size_t kLeastFile = 1 << 20;  // bytes of a tensor that has a file

torch::Tensor on_heap(torch::IntArrayRef shape, torch::ScalarType dtype) {
  return torch::empty(shape, dtype);
}

// Maps a new file of this folder, which has no name any more. Returns null where that is impossible.
void* map_new_file(const std::filesystem::path& folder, size_t bytes) {
  TemporaryFile file;
  try {
    file = create_temporary(folder);
  } catch (const std::system_error&) {
    return nullptr;
  }
  ::unlink(file.path.c_str());
  // Without room set aside a full disk would show as SIGBUS, when the tensor is written.
  const bool fits = ::fallocate(file.fd, 0, 0, static_cast<off_t>(bytes)) == 0;
  void* place = fits ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0) : MAP_FAILED;
  ::close(file.fd);  // the mapping keeps the file
  return place == MAP_FAILED ? nullptr : place;
}

}  // namespace

TensorAllocator heap_memory() { return on_heap; }

TensorAllocator file_memory(std::filesystem::path folder) {
  return [folder = std::move(folder)](torch::IntArrayRef shape, torch::ScalarType dtype) {
    const auto bytes = static_cast<size_t>(c10::multiply_integers(shape)) * c10::elementSize(dtype);
    void* const place = bytes < kLeastFile ? nullptr : map_new_file(folder, bytes);
    if (place == nullptr) return on_heap(shape, dtype);
    return torch::from_blob(
        place, shape, [bytes](void* mapped) { ::munmap(mapped, bytes); }, dtype);
  };
}

}  // namespace lockstep
