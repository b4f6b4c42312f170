#include <lockstep/app/launch/launch_signals.h>

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>

#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>

namespace lockstep {
namespace {

bool is_ignored(int signal) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  return now.sa_handler == SIG_IGN;
}

// Milliseconds for poll(), rounded up: it must not return before the time.
int poll_limit(std::optional<std::chrono::steady_clock::time_point> until) {
  if (!until) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(*until - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
}

}  // namespace

LaunchSignals::LaunchSignals() {
  sigset_t read_here;
  sigemptyset(&read_here);
  sigaddset(&read_here, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!is_ignored(signal)) sigaddset(&read_here, signal);
  }
  fd_ = OwnedFd(::signalfd(-1, &read_here, SFD_CLOEXEC | SFD_NONBLOCK));
  if (fd_.get() < 0) throw FailedError(fmt::format("cannot read signals: {}", errno_text(errno)));
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;  // ignored, it would let the kernel forget how processes have ended
  ::sigaction(SIGCHLD, &usual, &on_child_before_);
  ::pthread_sigmask(SIG_BLOCK, &read_here, &blocked_before_);
}

LaunchSignals::~LaunchSignals() {
  ::pthread_sigmask(SIG_SETMASK, &blocked_before_, nullptr);
  ::sigaction(SIGCHLD, &on_child_before_, nullptr);
}

std::optional<int> LaunchSignals::wait(std::optional<std::chrono::steady_clock::time_point> until) {
  pollfd watched{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&watched, 1, poll_limit(until)) <= 0) return std::nullopt;
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace lockstep
