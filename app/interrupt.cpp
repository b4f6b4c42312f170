#include <lockstep/app/interrupt.h>

#include <fmt/format.h>

#include <atomic>

namespace lockstep {
namespace {

// A handler can reach nothing but a variable of static storage.
std::atomic<int> noted_signal{0};
int guards = 0;  // that live, one within the other
static_assert(std::atomic<int>::is_always_lock_free);

void note(int signal) {
  noted_signal = signal;
  struct sigaction at_once {};
  at_once.sa_handler = SIG_DFL;
  sigaction(SIGINT, &at_once, nullptr);
  sigaction(SIGTERM, &at_once, nullptr);
}

struct sigaction install(int signal) {
  struct sigaction old {};
  sigaction(signal, nullptr, &old);
  if (old.sa_handler == SIG_IGN) return old;
  struct sigaction noting {};
  noting.sa_handler = note;
  noting.sa_flags = SA_RESTART;  // nobody's read or write fails because of it
  sigaction(signal, &noting, nullptr);
  return old;
}

}  // namespace

InterruptedError::InterruptedError(int signal, const std::string& where)
    : Error(signal == SIGINT ? ExitCode::kInterrupt : ExitCode::kTerminate,
            fmt::format("stopped by {} {}", signal == SIGINT ? "Ctrl-C" : "SIGTERM", where)) {}

InterruptGuard::InterruptGuard() {
  old_interrupt_ = install(SIGINT);
  old_terminate_ = install(SIGTERM);
  if (guards++ == 0) noted_signal = 0;
}

InterruptGuard::~InterruptGuard() {
  --guards;
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
}

std::optional<int> InterruptGuard::signal() const {
  const int signal = noted_signal;
  return signal == 0 ? std::nullopt : std::optional(signal);
}

}  // namespace lockstep
