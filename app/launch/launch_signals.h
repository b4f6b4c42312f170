// The signals of a launcher, which reads them one after the other instead of being interrupted by them.
#pragma once

#include <signal.h>

#include <chrono>
#include <optional>

#include <lockstep/support/files/owned_fd.h>

namespace lockstep {

// While the object lives, SIGINT, SIGTERM, SIGHUP and SIGCHLD are blocked in this thread and in the threads
// that it starts, and wait to be read. A signal that was ignored before (nohup) stays ignored. Create it
// before other threads: a signal to the process goes to any thread that does not block it.
class LaunchSignals {
 public:
  LaunchSignals();
  ~LaunchSignals();
  LaunchSignals(const LaunchSignals&) = delete;
  LaunchSignals& operator=(const LaunchSignals&) = delete;

  // The next signal. nullopt when none comes until then; without a limit it waits for one.
  std::optional<int> wait(std::optional<std::chrono::steady_clock::time_point> until);

  // The signals that were blocked before: for new processes.
  const sigset_t& blocked_before() const { return blocked_before_; }

 private:
  OwnedFd fd_;
  sigset_t blocked_before_;
  struct sigaction on_child_before_;
};

}  // namespace lockstep
