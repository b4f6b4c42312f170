// Watches collectives that have been queued on GPUs, with a timeout: a kernel cannot report that it waits for
// a peer for ever.
#pragma once

#include <c10/core/Event.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <lockstep/support/error.h>

namespace lockstep {

class CollectiveWatch {
 public:
  using Clock = std::chrono::steady_clock;

  struct Operation {
    std::string what;  // such as "allreduce on cuda:1 (collective 3)"
    Clock::time_point begin = Clock::now();
    std::shared_ptr<c10::Event> end = {};       // recorded after the operation
    std::function<std::string()> failure = {};  // returns the library's error message; empty: no error
  };

  // end_all: ends the kernels of all local ranks; called once, by the first abort(), from any thread.
  // hint: hint of the PeerErrors that the watch itself raises. Throws MemoryError if the system cannot start
  // a thread.
  CollectiveWatch(std::chrono::milliseconds timeout, std::string hint, std::function<void()> end_all);
  ~CollectiveWatch();

  // Watches the operation from now on: aborts when it fails or does not finish within the timeout.
  // Thread-safe.
  void add(Operation operation);

  // Ends all collectives with this error; after the first call it does nothing. Thread-safe.
  void abort(std::exception_ptr error);
  std::exception_ptr error() const;  // null: none. Thread-safe

  // Returns true if nothing has failed and no operation is in flight. Thread-safe.
  bool is_idle();

  bool late(const Operation& operation) const { return Clock::now() - operation.begin > timeout_; }
  double timeout_seconds() const { return std::chrono::duration<double>(timeout_).count(); }
  PeerError failed(const Operation& operation, const std::string& words) const;
  PeerError overdue(const Operation& operation) const;

 private:
  void work();
  std::exception_ptr find_problem();

  const std::chrono::milliseconds timeout_;
  const std::string hint_;
  const std::function<void()> end_all_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> operations_;  // queued, perhaps finished
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
