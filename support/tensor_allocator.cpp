#include <lockstep/support/tensor_allocator.h>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <system_error>
#include <utility>

#include <lockstep/support/files/temporary_file.h>

namespace lockstep {
namespace {

constexpr size_t kLeastFile = 1 << 20;  // bytes of a tensor that has a file

torch::Tensor on_heap(torch::IntArrayRef shape, torch::ScalarType dtype) {
  return torch::empty(shape, dtype);
}

// Takes the file's name and sets its room aside: else a full disk would show as SIGBUS, when the tensor is
// written. Returns false where that is impossible, or would leave less than so many bytes on the disk.
bool set_aside(const TemporaryFile& file, size_t bytes, size_t left) {
  struct statvfs disk {};
  return ::unlink(file.path.c_str()) == 0 && ::fallocate(file.fd, 0, 0, static_cast<off_t>(bytes)) == 0 &&
         ::fstatvfs(file.fd, &disk) == 0 && disk.f_bavail * disk.f_frsize >= left;
}

// Maps a new file of this folder, which has no name any more. Returns null where set_aside() returns false.
void* map_new_file(const std::filesystem::path& folder, size_t bytes, size_t left) {
  TemporaryFile file;
  try {
    file = create_temporary(folder);
  } catch (const std::system_error&) {
    return nullptr;
  }
  void* place = MAP_FAILED;
  if (set_aside(file, bytes, left)) {
    place = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
  }
  ::close(file.fd);  // the mapping keeps the file
  return place == MAP_FAILED ? nullptr : place;
}

}  // namespace

TensorAllocator heap_memory() { return on_heap; }

TensorAllocator file_memory(std::filesystem::path folder) {
  const auto in_files = std::make_shared<std::atomic<size_t>>(0);  // bytes so far
  return [folder = std::move(folder), in_files](torch::IntArrayRef shape, torch::ScalarType dtype) {
    const auto bytes = static_cast<size_t>(c10::multiply_integers(shape)) * c10::elementSize(dtype);
    void* const place = bytes < kLeastFile ? nullptr : map_new_file(folder, bytes, *in_files + bytes);
    if (place == nullptr) return on_heap(shape, dtype);
    *in_files += bytes;
    return torch::from_blob(
        place, shape, [bytes](void* mapped) { ::munmap(mapped, bytes); }, dtype);
  };
}

bool has_file_memory(const std::filesystem::path& folder) {
  struct statfs system {};
  if (::statfs(folder.c_str(), &system) != 0 || system.f_type == TMPFS_MAGIC) return false;
  void* const place = map_new_file(folder, kLeastFile, 0);
  if (place != nullptr) ::munmap(place, kLeastFile);
  return place != nullptr;
}

}  // namespace lockstep
