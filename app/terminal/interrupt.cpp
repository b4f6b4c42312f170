#include <lockstep/app/terminal/interrupt.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <stdexcept>
#include <tuple>

namespace lockstep {
namespace {

struct Guarded {
  int signal;
  const char* name;
  ExitCode code;
};

constexpr std::array<Guarded, 3> kGuarded = {{{SIGINT, "Ctrl-C", ExitCode::kInterrupt},
                                              {SIGTERM, "SIGTERM", ExitCode::kTerminate},
                                              {SIGHUP, "SIGHUP", ExitCode::kHangup}}};

// A signal handler may use only variables of static storage.
struct Reply {
  bool installed = false;      // the handler is installed for this signal
  std::array<char, 200> text;  // printed when the signal comes
  size_t length = 0;
};
constexpr size_t kMostPrefix = 20;
std::array<Reply, kGuarded.size()> replies;  // written only while no handler is installed
std::atomic<int> noted_signal{0};
std::atomic<const char*> message_prefix{nullptr};  // of the message, instead of usual_prefix
const char* usual_prefix = "";                     // written only while no handler is installed
int guards = 0;                                    // alive now, nested
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free);

const Guarded& guarded(int signal) { return *std::ranges::find(kGuarded, signal, &Guarded::signal); }

// In one call, so that nothing gets into the middle. Async-signal-safe.
void print_reply(const Reply& reply) {
  std::array<char, kMostPrefix + std::tuple_size_v<decltype(Reply::text)>> message;
  const char* before = message_prefix;
  if (!before) before = usual_prefix;
  size_t length = 0;
  while (length < kMostPrefix && before[length] != 0) message[length] = before[length], ++length;
  for (size_t i = 0; i < reply.length; ++i) message[length++] = reply.text[i];
  (void)!::write(STDERR_FILENO, message.data(), length);
}

// The handler. Calls only async-signal-safe functions.
void note(int signal) {
  const int error = errno;
  int none = 0;
  const bool first = noted_signal.compare_exchange_strong(none, signal);
  struct sigaction at_once {};
  at_once.sa_handler = SIG_DFL;
  for (size_t i = 0; i < kGuarded.size(); ++i) {
    if (replies[i].installed) sigaction(kGuarded[i].signal, &at_once, nullptr);
  }
  for (size_t i = 0; first && i < kGuarded.size(); ++i) {
    if (kGuarded[i].signal == signal) print_reply(replies[i]);
  }
  if (!first) raise(signal);  // it came while the first one was handled
  errno = error;
}

void prepare(Reply& reply, const Guarded& guarded, const std::string& awaited) {
  const auto text =
      fmt::format("lockstep: {} noted, waiting for {}; a second one ends at once\n", guarded.name, awaited);
  reply.length = std::min(text.size(), reply.text.size());
  std::copy_n(text.begin(), reply.length, reply.text.begin());
}

}  // namespace

InterruptedError::InterruptedError(int signal, const std::string& where)
    : Error(guarded(signal).code, fmt::format("stopped by {} {}", guarded(signal).name, where)) {}

InterruptGuard::InterruptGuard(const std::string& awaited) {
  if (awaited.size() > kMostAwaited) throw std::length_error("InterruptGuard: " + awaited);
  if (guards++ > 0) return;
  noted_signal = 0;
  usual_prefix = isatty(STDERR_FILENO) ? "\n" : "";  // a terminal prints ^C at the cursor
  // While the handler runs, the other signals wait: the first message is printed whole.
  struct sigaction noting {};
  noting.sa_handler = note;
  noting.sa_flags = SA_RESTART;  // no read or write fails with EINTR
  for (const auto& guarded : kGuarded) sigaddset(&noting.sa_mask, guarded.signal);
  for (size_t i = 0; i < kGuarded.size(); ++i) {
    sigaction(kGuarded[i].signal, nullptr, &old_[i]);
    replies[i].installed = old_[i].sa_handler != SIG_IGN;
    prepare(replies[i], kGuarded[i], awaited);
  }
  for (size_t i = 0; i < kGuarded.size(); ++i) {
    if (replies[i].installed) sigaction(kGuarded[i].signal, &noting, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  if (--guards > 0) return;
  for (size_t i = 0; i < kGuarded.size(); ++i) sigaction(kGuarded[i].signal, &old_[i], nullptr);
  noted_signal = 0;
}

void InterruptGuard::begin_message_with(const char* text) { message_prefix = text; }

std::optional<int> InterruptGuard::signal() {
  const int signal = noted_signal;
  return signal == 0 ? std::nullopt : std::optional(signal);
}

void InterruptGuard::stop_if_signalled(const std::string& where) {
  if (const auto noted = signal()) throw InterruptedError(*noted, where);
}

}  // namespace lockstep
