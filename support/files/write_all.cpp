#include <lockstep/support/files/write_all.h>

#include <unistd.h>

#include <cerrno>

namespace lockstep {

WriteResult write_all(int fd, std::span<const std::byte> bytes) noexcept {
  size_t written = 0;
  while (written < bytes.size()) {
    const auto count = ::write(fd, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return {.bytes = written, .error = errno};
    written += static_cast<size_t>(count);
  }
  return {.bytes = written};
}

}  // namespace lockstep
