// Stopping a run from outside, cleanly.
#pragma once

#include <csignal>
#include <optional>
#include <string>

#include <lockstep/support/error.h>

namespace lockstep {

// Work that stopped because SIGINT or SIGTERM asked for it. `where`: as in "after step 7 of epoch 2".
class InterruptedError : public Error {
 public:
  InterruptedError(int signal, const std::string& where);
};

// While it lives, the first SIGINT or SIGTERM is only noted, for the work to stop at a point of its choice;
// the second one ends the process at once. A signal that was ignored before (nohup) stays ignored. Within
// another one's life it notes the same signals.
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
