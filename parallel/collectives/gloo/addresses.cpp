#include <lockstep/parallel/collectives/gloo/addresses.h>

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <set>

#include <lockstep/parallel/collectives/gloo/sockets.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>

namespace lockstep {
namespace {

bool is_ipv4(const std::string& host) {
  in_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1;
}

bool is_ipv6(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// The address as text; empty if it has none.
std::string numeric(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

// The address that this end of the socket has; empty if it cannot be read.
std::string own_address(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  return ::getsockname(socket.get(), generic, &size) == 0 ? numeric(generic, size) : std::string();
}

}  // namespace

Addresses find_addresses(const std::string& host, uint16_t port) {
  addrinfo wanted{};
  wanted.ai_flags = AI_NUMERICSERV;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (error != 0) return {.problem = ::gai_strerror(error)};
  return {.list = std::unique_ptr<addrinfo, FreeAddresses>(found)};
}

bool is_numeric(const std::string& host) { return is_ipv4(host) || is_ipv6(host); }

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || (is_ipv4(host) && host.starts_with("127."));
}

std::string host_and_port(const std::string& host, uint16_t port) {
  return is_ipv6(host) ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string address_of_interface(const std::string& name, const std::string& asked_by) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) throw DeviceError("cannot list the interfaces: " + errno_text(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(found, &::freeifaddrs);
  std::set<std::string> names;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const auto* entry = all.get(); entry != nullptr; entry = entry->ifa_next) {
      if (!entry->ifa_addr || entry->ifa_addr->sa_family != family) continue;
      names.insert(entry->ifa_name);
      const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (name == entry->ifa_name) return numeric(entry->ifa_addr, size);
    }
  }
  throw UsageError(
      fmt::format("{} is '{}', but this host has no interface of that name with an address", asked_by, name),
      fmt::format("name one of {}", fmt::join(names, ", ")));
}

std::string address_towards(const std::string& host, uint16_t port) {
  const auto addresses = find_addresses(host, port);
  for (auto* address = addresses.list.get(); address != nullptr; address = address->ai_next) {
    // A datagram socket that is connected has chosen its interface, and has sent nothing.
    const Socket socket(::socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), address->ai_addr, address->ai_addrlen) == 0) return own_address(socket);
  }
  return {};
}

}  // namespace lockstep
