// The key-value store through which the processes find each other: c10d's TCPStore.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/world/world.h>

namespace lockstep {

struct C10dStore;

// A client, and in process 0 the server, too, unless the launcher runs it. Keys belong to this run. Use it
// from one thread. All functions throw PeerError when the store is lost or does not answer within ten
// seconds.
class ProcessStore {
 public:
  using Keys = std::vector<std::string>;

  // Throws DeviceError that names host and port when the store cannot be served, or not be reached within the
  // timeout. The server listens on all interfaces if a launcher of processes that may be on several hosts
  // calls the master localhost: then those of this host come through loopback, and others by its address.
  // Else it listens on the loopback interface if all processes are known to be on one host, or if the master
  // is a loopback address; else on `listen`; if that is empty on the master's address, or on all interfaces
  // when the master is given by name, which may mean another address on another host.
  ProcessStore(const World& world, const std::string& listen, std::chrono::milliseconds timeout);

  void set(const std::string& key, const std::string& value) const;
  // Returns the value that is there afterwards.
  std::string set_if_new(const std::string& key, const std::string& value) const;
  int64_t add(const std::string& key, int64_t number) const;  // returns the sum
  void remove(const std::string& key) const;
  bool has(const Keys& keys) const;                      // returns true if all are there
  std::vector<int> missing(const Keys& keys) const;      // returns the positions of those that are not there
  std::vector<std::string> get(const Keys& keys) const;  // that are there

  // Waits until all keys are there. Returns false when they are not within the limit.
  bool wait(const Keys& keys, std::chrono::milliseconds limit) const;

  // For a thread of its own: c10d's clients have a lock, which a waiting get holds.
  std::shared_ptr<C10dStore> another_client() const;

  bool is_served_here() const { return is_served_here_; }
  const std::string& host() const { return host_; }    // of the server
  const std::string& place() const { return place_; }  // host and port, for messages

 private:
  template <typename Call>
  auto ask(Call call) const;
  template <typename Call>
  auto ask_within(std::chrono::milliseconds limit, Call call) const;

  const bool is_served_here_;
  const std::chrono::milliseconds connect_limit_;
  const std::string host_;
  const std::string place_;  // host and port, for messages
  const std::string hint_;
  const std::shared_ptr<C10dStore> client_;
};

}  // namespace lockstep
