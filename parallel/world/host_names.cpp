#include <lockstep/parallel/world/host_names.h>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace lockstep {
namespace {

addrinfo* addresses_of(const std::string& name, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  addrinfo* found = nullptr;
  return ::getaddrinfo(name.c_str(), nullptr, &wanted, &found) == 0 ? found : nullptr;
}

}  // namespace

std::string own_host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string machine_name() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return own_host_name() + " " + boot;
}

bool host_resolves(const std::string& name) {
  auto* const found = addresses_of(name, 0);
  if (found) ::freeaddrinfo(found);
  return found != nullptr;
}

bool is_own_address(const std::string& address) {
  auto* const found = addresses_of(address, AI_NUMERICHOST);
  if (!found) return false;
  const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool own = fd >= 0 && ::bind(fd, found->ai_addr, found->ai_addrlen) == 0;
  if (fd >= 0) ::close(fd);
  ::freeaddrinfo(found);
  return own;
}

}  // namespace lockstep
