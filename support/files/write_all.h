// Writing all bytes to a file descriptor, as ::write() need not.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

struct WriteResult {
  size_t bytes = 0;  // written
  int error = 0;     // errno of the call that failed; 0: all bytes are written
};

// Goes on after short writes and EINTR. fd: of a blocking file.
WriteResult write_all(int fd, std::span<const std::byte> bytes) noexcept;

}  // namespace lockstep
