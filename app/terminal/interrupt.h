// Stops a run cleanly after a signal.
#pragma once

#include <array>
#include <csignal>
#include <optional>
#include <string>

#include <lockstep/support/error.h>

namespace lockstep {

// The work was stopped by SIGINT, SIGTERM or SIGHUP. `where`: for example "after step 7 of epoch 2".
class InterruptedError : public Error {
 public:
  InterruptedError(int signal, const std::string& where);
};

// While a guard lives, the first SIGINT, SIGTERM or SIGHUP is only noted, and a message goes to standard
// error. The work can then stop where it wants. The second signal ends the process. A signal that was ignored
// before (nohup) stays ignored. A nested guard shares the outer guard's state and message.
class InterruptGuard {
 public:
  // Characters of what a message says the program waits for: more do not fit into 80 columns.
  static constexpr size_t kMostAwaited = 16;

  // awaited: for example "the current step". Throws std::length_error if it is longer than kMostAwaited.
  explicit InterruptGuard(const std::string& awaited);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The first signal that a guard that lives has noted, if any.
  static std::optional<int> signal();

  // Sets what comes before a signal's message, instead of a line break on a terminal: at most 20 bytes of
  // static storage; null: nothing special. For what stands at the cursor and must go.
  static void begin_message_with(const char* text);

  // Throws InterruptedError if a signal has been noted.
  static void stop_if_signalled(const std::string& where);

 private:
  std::array<struct sigaction, 3> old_;
};

}  // namespace lockstep
