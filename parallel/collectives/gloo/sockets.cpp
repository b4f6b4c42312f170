#include <lockstep/parallel/collectives/gloo/sockets.h>

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include <lockstep/parallel/collectives/gloo/addresses.h>
#include <lockstep/parallel/collectives/gloo/messages.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>

namespace lockstep {
namespace {

using SocketClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kNameLimit{10'000};
constexpr milliseconds kShortestPause{10};
constexpr milliseconds kLongestPause{500};
constexpr milliseconds kLongestAttempt{5'000};  // an address that swallows packets leaves time for the next

void set_flag(const Socket& socket, int level, int name, int value) {
  ::setsockopt(socket.get(), level, name, &value, sizeof value);
}

// Returns 0, or the system's error.
int listen_at(const Socket& socket, const addrinfo& address) {
  set_flag(socket, SOL_SOCKET, SO_REUSEADDR, 1);  // the port of an earlier run is free at once
  if (address.ai_family == AF_INET6) set_flag(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0) return errno;
  return ::listen(socket.get(), SOMAXCONN) == 0 ? 0 : errno;
}

// Between two ports of one host a connection can meet itself when nobody listens.
bool met_itself(const Socket& socket) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof own;
  socklen_t peer_size = sizeof peer;
  return ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
         own_size == peer_size && std::memcmp(&own, &peer, own_size) == 0;
}

// Returns 0 when somebody has accepted a connection, or the system's error.
int try_connect(const addrinfo& address, milliseconds limit) {
  const Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return errno;
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    pollfd writable{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    const int ready = ::poll(&writable, 1, static_cast<int>(limit.count()));
    if (ready <= 0) return ready == 0 ? ETIMEDOUT : errno;
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
    if (error != 0) return error;
  }
  return met_itself(socket) ? ECONNREFUSED : 0;
}

// Returns the problem at the last of the addresses; empty when one of them answers.
std::string try_connect_to_any(const Addresses& addresses, milliseconds limit) {
  int error = 0;
  for (auto* address = addresses.list.get(); address != nullptr; address = address->ai_next) {
    error = try_connect(*address, limit);
    if (error == 0) return {};
  }
  return errno_text(error);
}

}  // namespace

Socket listen_on(const std::string& address, uint16_t port) {
  // The first of these takes IPv4, too, where the system has IPv6.
  const auto wanted = address.empty() ? std::vector<std::string>{"::", "0.0.0.0"} : std::vector{address};
  std::string problem;
  for (const auto& host : wanted) {
    const auto addresses = find_addresses(host, port);
    problem = addresses.problem;
    for (auto* entry = addresses.list.get(); entry != nullptr; entry = entry->ai_next) {
      Socket socket(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const int error = socket.get() < 0 ? errno : listen_at(socket, *entry);
      if (error == 0) return socket;
      problem = errno_text(error);
    }
  }
  const auto place = address.empty() ? fmt::format("port {} of all interfaces", port)
                     : port == 0     ? address
                                     : host_and_port(address, port);
  throw DeviceError(fmt::format("cannot listen on {}: {}", place, problem),
                    "choose an address of this host, and a port that no other program uses");
}

uint16_t port_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw DeviceError(fmt::format("a socket has no port: {}", errno_text(errno)));
  }
  const auto* const port = address.ss_family == AF_INET6
                               ? &reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                               : &reinterpret_cast<const sockaddr_in&>(address).sin_port;
  return ntohs(*port);
}

void wait_for_listener(const std::string& host, uint16_t port, milliseconds timeout) {
  const auto begin = SocketClock::now();
  for (auto pause = kShortestPause;; pause = std::min(2 * pause, kLongestPause)) {
    const auto addresses = find_addresses(host, port);
    const auto limit = addresses.list ? timeout : std::min(timeout, kNameLimit);
    const auto left = [&] {
      return limit - std::chrono::duration_cast<milliseconds>(SocketClock::now() - begin);
    };
    auto problem = addresses.problem;
    if (addresses.list) {
      problem = try_connect_to_any(addresses, std::clamp(left(), milliseconds(1), kLongestAttempt));
      if (problem.empty()) return;
    }
    if (left() <= milliseconds(0)) {
      throw DeviceError(
          fmt::format("nobody answers at {} within {}: {}", host_and_port(host, port), in_seconds(limit),
                      problem),
          "check host and port, that process 0 runs there, and that this host may connect to it");
    }
    std::this_thread::sleep_for(std::min(pause, std::max(left(), milliseconds(1))));
  }
}

}  // namespace lockstep
