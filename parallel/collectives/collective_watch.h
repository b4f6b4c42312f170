// Looks after collectives that have been queued on GPUs: a kernel that waits for a peer cannot say so itself.
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
    std::shared_ptr<c10::Event> end = {};  // recorded behind it
    std::function<std::string()> failure =
        {};  // what has gone wrong, as its library says; empty: nothing yet
  };

  // end_all: ends the kernels of all local ranks, from any thread; called once, by the first abort(). hint:
  // of the errors, PeerError, that the watch itself raises.
  CollectiveWatch(std::chrono::milliseconds timeout, std::string hint, std::function<void()> end_all);
  ~CollectiveWatch();

  // From now on looks whether it fails or is not over within the timeout, and aborts then.
  void add(Operation operation);

  // The first error counts. From any thread, any number of times.
  void abort(std::exception_ptr error);
  std::exception_ptr error() const;  // null: none

  // Whether nothing has failed and nothing is under way.
  bool settled();

  bool late(const Operation& operation) const { return Clock::now() - operation.begin > timeout_; }
  double timeout_seconds() const { return std::chrono::duration<double>(timeout_).count(); }
  PeerError failed(const Operation& operation, const std::string& words) const;
  PeerError overdue(const Operation& operation) const;

 private:
  void work();
  std::exception_ptr look();

  const std::chrono::milliseconds timeout_;
  const std::string hint_;
  const std::function<void()> end_all_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> operations_;  // queued, perhaps not over
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
