// The store through which the processes of a run find each other, served by a launcher.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

// Serves a store on a free port of the loopback interface while it lives: only processes of this machine can
// connect. Has a thread of its own. Thread-safe.
class StoreServer {
 public:
  // Throws DeviceError when it cannot listen.
  explicit StoreServer();
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Where it listens: "127.0.0.1" and the port.
  std::string host() const;
  uint16_t port() const;

  // Returns true if a process has written to it, or if it does not answer.
  bool used() const noexcept;

 private:
  struct Served;
  std::unique_ptr<Served> served_;
};

}  // namespace lockstep
