#include <lockstep/parallel/collectives/gloo/addresses.h>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* found) const { ::freeaddrinfo(found); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// Returns the addresses of a name, or the error of the resolver.
std::pair<Addresses, int> resolve_name(const std::string& host, uint16_t port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  return {Addresses(error ? nullptr : found), error};
}

Addresses resolved(const std::string& host, uint16_t port) {
  auto [found, error] = resolve_name(host, port);
  if (found) return std::move(found);
  throw DeviceError(
      fmt::format("the name {} of the master does not resolve: {}", host, ::gai_strerror(error)),
      "name the master by its address");
}

class OwnSocket {
 public:
  OwnSocket(int family, int type) : fd_(::socket(family, type | SOCK_CLOEXEC, 0)) {}
  ~OwnSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  OwnSocket(const OwnSocket&) = delete;
  OwnSocket& operator=(const OwnSocket&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::string text_of_address(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  ::getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

}  // namespace

std::string host_identity() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  struct stat network {};
  ::stat("/proc/self/ns/net", &network);
  return fmt::format("{}/{}", name.data(), network.st_ino);
}

bool is_loopback(const std::string& host, uint16_t port) {
  const auto [found, error] = resolve_name(host, port);
  if (!found) return false;
  const auto text = text_of_address(found->ai_addr, found->ai_addrlen);
  return text.starts_with("127.") || text == "::1";
}

std::string address_towards(const std::string& host, uint16_t port) {
  const auto found = resolved(host, port);
  const OwnSocket socket(found->ai_family, SOCK_DGRAM);
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  auto* const general = reinterpret_cast<sockaddr*>(&own);
  if (socket.get() < 0 || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::getsockname(socket.get(), general, &length) != 0) {
    throw DeviceError(
        fmt::format("no network leads to the master {}:{}: {}", host, port, std::strerror(errno)),
        "name the master by an address that this host reaches");
  }
  return text_of_address(general, length);
}

int listen_on(const std::string& address, uint16_t port) {
  const auto found = resolved(address, port);
  OwnSocket socket(found->ai_family, SOCK_STREAM);
  const int on = 1;  // a port whose last connection is just closed can be used again
  if (socket.get() < 0 || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    throw DeviceError(
        fmt::format("process 0 cannot listen on {}:{}: {}", address, port, std::strerror(errno)),
        "choose another port for the master, or another process for rank 0");
  }
  return socket.release();
}

}  // namespace lockstep
