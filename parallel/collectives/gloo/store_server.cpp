#include <lockstep/parallel/store_server.h>

#include <arpa/inet.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr std::chrono::seconds kConnectTimeout{30};  // of the server's own client

DeviceError no_store(const std::string& why) {
  return DeviceError(fmt::format("cannot serve the processes' store on {}: {}", kLoopback, why));
}

struct Listener {
  int fd = -1;
  uint16_t port = 0;
};

// The kernel chooses the port, so that launches at the same time never choose the same. (Given only a port,
// c10d would listen on all interfaces.)
Listener listen_on_loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const general = reinterpret_cast<sockaddr*>(&address);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool listens = fd >= 0 && ::bind(fd, general, length) == 0 && ::listen(fd, SOMAXCONN) == 0 &&
                       ::getsockname(fd, general, &length) == 0;
  if (!listens) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    throw no_store(std::strerror(error));
  }
  return {.fd = fd, .port = ntohs(address.sin_port)};
}

}  // namespace

struct StoreServer::Served {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

StoreServer::StoreServer() : served_(std::make_unique<Served>()) {
  const auto listener = listen_on_loopback();
  c10d::TCPStoreOptions options;
  options.port = listener.port;
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = kConnectTimeout;
  options.masterListenFd = listener.fd;  // the store closes it
  try {
    served_->store = c10::make_intrusive<c10d::TCPStore>(kLoopback, options);
  } catch (const c10::Error& error) {
    throw no_store(error.what_without_backtrace());
  }
}

StoreServer::~StoreServer() = default;

std::string StoreServer::host() const { return kLoopback; }

uint16_t StoreServer::port() const { return served_->store->getPort(); }

}  // namespace lockstep
