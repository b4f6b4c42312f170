// The sockets that c10d does not open as it should: its store would listen on all interfaces, and print
// warnings while it tries to connect.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace lockstep {

// Closes the descriptor of a socket.
class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  Socket& operator=(Socket&&) = delete;

  int get() const { return descriptor_; }  // negative: the system gave none
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

// Listens on an address of this host; empty: on all interfaces. port: 0 for a free one, which no other
// listener has (port_of() tells it). Throws DeviceError that names address and port.
Socket listen_on(const std::string& address, uint16_t port);

// On which the socket listens. Throws DeviceError if it has none.
uint16_t port_of(const Socket& socket);

// Returns when somebody listens there. Throws DeviceError that names host and port when nobody does within
// the timeout; after ten seconds if the name does not resolve, which it may do only a moment after the start
// of a cluster's job.
void wait_for_listener(const std::string& host, uint16_t port, std::chrono::milliseconds timeout);

}  // namespace lockstep
