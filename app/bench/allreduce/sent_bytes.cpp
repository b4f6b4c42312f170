#include <lockstep/app/bench/allreduce/sent_bytes.h>

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>

namespace lockstep {
namespace {

bool is_tcp(int fd) {
  int protocol = 0;
  socklen_t size = sizeof protocol;
  return ::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP;
}

// Bytes that were handed to this connection, also those that still wait in its buffer.
std::optional<int64_t> written_to(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  constexpr size_t kNeeded = offsetof(tcp_info, tcpi_bytes_retrans) + sizeof info.tcpi_bytes_retrans;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < kNeeded) return std::nullopt;
  return static_cast<int64_t>(info.tcpi_bytes_sent - info.tcpi_bytes_retrans + info.tcpi_notsent_bytes);
}

}  // namespace

std::optional<int64_t> sent_bytes() {
  int64_t sum = 0;
  std::error_code error;
  std::filesystem::directory_iterator files("/proc/self/fd", error);
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) {
    const auto name = files->path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (!is_tcp(fd)) continue;
    const auto written = written_to(fd);
    if (!written) return std::nullopt;
    sum += *written;
  }
  return error ? std::nullopt : std::optional(sum);
}

}  // namespace lockstep
