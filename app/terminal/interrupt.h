// Stopping a run from outside, cleanly.
#pragma once

#include <array>
#include <csignal>
#include <optional>
#include <string>

#include <lockstep/support/error.h>

namespace lockstep {

// Work that stopped because SIGINT, SIGTERM or SIGHUP asked for it. `where`: as in "after step 7 of epoch 2".
class InterruptedError : public Error {
 public:
  InterruptedError(int signal, const std::string& where);
};

// While it lives, the first SIGINT, SIGTERM or SIGHUP is noted, for the work to stop at a point of its
// choice, and standard error says so at once; the second one ends the process. A signal that was ignored
// before (nohup) stays ignored. A guard within another one's life notes and says what that one does.
class InterruptGuard {
 public:
  // awaited: what is waited for then, as in "the step under way".
  explicit InterruptGuard(const std::string& awaited);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The signal, once one has come.
  std::optional<int> signal() const;

  // Throws InterruptedError once one has come.
  void stop_if_signalled(const std::string& where) const;

 private:
  std::array<struct sigaction, 3> old_;
};

}  // namespace lockstep
