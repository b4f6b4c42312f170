// The processes that train together, connected.
//
//   const auto group = join_process_group(find_world());  // parallel/world/world.h
//   options.process_group = group;                        // of a Trainer or of make_communicator()
//
// Each process drives its own devices, as many as it likes. Ranks are replicas, counted over the processes in
// order: with 3 and 1 replicas process 1 has rank 3.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/world/world.h>
#include <lockstep/support/error.h>

namespace lockstep {

class Channel;

inline constexpr std::chrono::milliseconds kPeerTimeout = std::chrono::minutes(5);

// All processes make the same calls in the same order. Not thread-safe, but a channel has its own threads.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  // process_on_host and processes_on_host are known here.
  virtual const World& world() const = 0;

  // Limit for each collective between the processes.
  virtual std::chrono::milliseconds timeout() const { return kPeerTimeout; }

  // Returns the texts of all processes, by process. Waits until every process has called it. Throws PeerError
  // when one does not within the timeout.
  virtual std::vector<std::string> gather(const std::string& own) = 0;

  // The first `count` of these processes, at least two, as a world of their own: for measuring how training
  // scales. They call it at the same point, the others do not. It must be destroyed before this object.
  // Throws as join_process_group() does, and UsageError where the group cannot be split.
  virtual std::shared_ptr<ProcessGroup> subgroup(int /*count*/) {
    throw UsageError("this group cannot be split", "use a group of join_process_group()");
  }

  // Call it when this process cannot go on, with the error that it ends by; then end. The others learn the
  // error, and name this process in theirs. A PeerError says only what this process has seen: in its place it
  // returns one with the verdict of all, which names the process that failed first, or that does not answer;
  // or says what each waits for, if all wait for each other. Any other error is returned as it is. Takes some
  // seconds at most. The others do not know that a process waits in NCCL: to them it answers, but takes
  // no part.
  //
  //   } catch (...) {
  //     std::rethrow_exception(group->explain(std::current_exception()));
  //   }
  //
  // name: of this process, for the messages of others: "rank 4 (process 2)". Empty: by its number.
  virtual std::exception_ptr explain(const std::exception_ptr& error,
                                     const std::string& /*name*/ = {}) noexcept {
    return error;  // of processes that nobody watches
  }

 private:
  // For lockstep's communicators alone, by open_channels(): Channel is not installed.
  virtual std::vector<std::unique_ptr<Channel>> make_channels(int count) = 0;
  friend std::vector<std::unique_ptr<Channel>> open_channels(ProcessGroup& group, int count);
};

struct JoinOptions {
  // Limit for finding the other processes, and for each collective between them.
  std::chrono::milliseconds timeout = kPeerTimeout;
  // Address or name on which this process listens. Empty: the interface in GLOO_SOCKET_IFNAME; without it
  // loopback if all processes are on one host, else the interface that leads to the store.
  std::string listen = {};
  // True if the processes of one host that may run on the same cores divide them equally. The calling thread,
  // and every thread that it starts from then on, is pinned to this process's share.
  bool divide_cores = true;
};

// Connects to the other processes. Returns null for a world of one process. c10d protects nothing: use it in
// a trusted network. Throws DeviceError when the store cannot be served or reached (names host and port),
// when two processes claim the same place, and when some do not come in time (names them);
// UsageError if GLOO_SOCKET_IFNAME is no interface of this host (names those that are).
std::shared_ptr<ProcessGroup> join_process_group(const World& world, const JoinOptions& options = {});

}  // namespace lockstep
