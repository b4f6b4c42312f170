// Stopping a run from outside, cleanly.
#pragma once

#include <csignal>
#include <optional>

namespace lockstep {

// While it lives, the first SIGINT or SIGTERM is only noted, for the work to stop at a point of its choice;
// the second one ends the process at once. A signal that was ignored before (nohup) stays ignored. One at a
// time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // SIGINT or SIGTERM once one has come.
  std::optional<int> signal() const;

 private:
  struct sigaction old_interrupt_;
  struct sigaction old_terminate_;
};

}  // namespace lockstep
