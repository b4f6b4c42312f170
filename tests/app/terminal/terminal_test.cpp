// Signals that the program notes, and what a terminal can show.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <stdexcept>
#include <string>

#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/terminal.h>

using namespace lockstep;

namespace {

// Runs `task` in a child process and returns its status; 0: success.
int status_of(const std::function<void()>& task) {
  const pid_t child = fork();
  if (child == 0) {
    // A test that runs in the background inherits ignored signals.
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
    task();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

int signal_after_installing = 0;

}  // namespace

// Replaces the C library's function, to raise a signal as soon as its handler is installed.
extern "C" int sigaction(int signal, const struct sigaction* action, struct sigaction* old) {
  using Function = int (*)(int, const struct sigaction*, struct sigaction*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "sigaction"));
  const int result = real(signal, action, old);
  if (action && signal == signal_after_installing && action->sa_handler != SIG_DFL) {
    signal_after_installing = 0;
    raise(signal);
  }
  return result;
}

TEST_CASE("the first signal is noted, and the old handlers are restored") {
  REQUIRE(std::signal(SIGINT, SIG_IGN) != SIG_ERR);
  REQUIRE(std::signal(SIGTERM, SIG_DFL) != SIG_ERR);
  {
    const InterruptGuard guard("nothing");
    CHECK_FALSE(guard.signal());
    raise(SIGINT);
    CHECK_FALSE(guard.signal());  // it was ignored before, as under nohup
    guard.stop_if_signalled("never");
    raise(SIGTERM);
    CHECK(guard.signal() == SIGTERM);
    CHECK_THROWS_WITH(guard.stop_if_signalled("after step 3"), "stopped by SIGTERM after step 3");
  }
  CHECK(std::signal(SIGINT, SIG_DFL) == SIG_IGN);
  CHECK(std::signal(SIGTERM, SIG_DFL) == SIG_DFL);
  const InterruptGuard next("nothing");
  CHECK_FALSE(next.signal());
}

TEST_CASE("each signal has its exit code") {
  CHECK(static_cast<int>(InterruptedError(SIGHUP, "").exit_code()) == 129);
  CHECK(static_cast<int>(InterruptedError(SIGINT, "").exit_code()) == 130);
  CHECK(static_cast<int>(InterruptedError(SIGTERM, "").exit_code()) == 143);
}

TEST_CASE("the second signal ends the process") {
  for (const int first : {SIGINT, SIGTERM, SIGHUP}) {
    for (const int second : {SIGINT, SIGTERM, SIGHUP}) {
      const int status = status_of([&] {
        const InterruptGuard guard("nothing");
        raise(first);
        if (guard.signal() != first) _exit(1);
        raise(second);
      });
      CHECK((WIFSIGNALED(status) && WTERMSIG(status) == second));
    }
  }
}

TEST_CASE("the second signal also ends the process within an inner guard") {
  const int status = status_of([] {
    const InterruptGuard outer("nothing");
    raise(SIGINT);
    const InterruptGuard inner("nothing");
    if (inner.signal() != SIGINT) _exit(1);
    raise(SIGINT);
  });
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGINT));
}

TEST_CASE("an ignored signal stays ignored after another signal") {
  const int status = status_of([] {
    std::signal(SIGINT, SIG_IGN);
    const InterruptGuard guard("nothing");
    raise(SIGTERM);
    raise(SIGINT);
    if (guard.signal() != SIGTERM) _exit(1);
  });
  CHECK(status == 0);
}

TEST_CASE("a signal during the guard's construction is not lost") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = status_of([&] {
      signal_after_installing = signal;
      const InterruptGuard guard("nothing");
      if (guard.signal() != signal) _exit(1);
    });
    CHECK(status == 0);
  }
}

TEST_CASE("a noted signal prints at once what the program waits for") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const int status = status_of([&] {
    dup2(ends[1], STDERR_FILENO);
    const InterruptGuard guard("the current step");
    raise(SIGINT);
  });
  CHECK(status == 0);
  ::close(ends[1]);
  std::array<char, 400> text;
  const auto count = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  CHECK(std::string(text.data(), static_cast<size_t>(std::max<ssize_t>(count, 0))) ==
        "lockstep: Ctrl-C noted, waiting for the current step; a second one ends at once\n");
}

TEST_CASE("what a program waits for is short enough for a message of 80 columns") {
  const std::string most(InterruptGuard::kMostAwaited, 'x');
  CHECK(("lockstep: SIGTERM noted, waiting for " + most + "; a second one ends at once").size() == 80);
  CHECK_NOTHROW(InterruptGuard(most));
  CHECK_THROWS_AS(InterruptGuard(most + "x"), std::length_error);
}

TEST_CASE("a file is not a terminal, and has colours only if demanded") {
  const int fd = ::open("/dev/null", O_WRONLY);
  const Terminal plain(fd, ColorMode::kAuto);
  CHECK_FALSE(plain.interactive());
  CHECK(plain.width() == 80);
  CHECK(plain.style().red("x") == "x");
  CHECK(Terminal(fd, ColorMode::kAlways).style().red("x") == "\x1b[1;31mx\x1b[0m");
  ::close(fd);
}

TEST_CASE("the locale decides whether UTF-8 is used") {
  setenv("LC_ALL", "C", 1);
  CHECK_FALSE(utf8_locale());
  setenv("LC_ALL", "C.UTF-8", 1);
  CHECK(utf8_locale());
  unsetenv("LC_ALL");
}
