// Ctrl-Z while a block is drawn: a shell and its job on a pseudo terminal.
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/live_block.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/tests/app/terminal/pseudo_terminal.h>
#include <lockstep/tests/app/terminal/screen.h>

using namespace lockstep;
using lockstep::testing::PseudoTerminal;
using lockstep::testing::Screen;
using Lines = std::vector<std::string>;

namespace {

// Ends the test's process by SIGALRM where it would hang.
constexpr unsigned kMostSeconds = 120;

// Runs job() in a process group of its own that has the terminal, in a session whose shell takes the
// terminal, writes a line and lets the job go on each time that it has stopped: as after Ctrl-Z and `fg`, or
// `bg` if not `to_foreground`. Returns the shell's exit code: 0 if the job stopped so often and then ended
// with 0.
int run_job(int stops, bool to_foreground, const std::function<void()>& job) {
  const pid_t shell = ::fork();
  if (shell == 0) {
    ::alarm(kMostSeconds);
    if (::setsid() < 0 || ::ioctl(STDERR_FILENO, TIOCSCTTY, 0) != 0) ::_exit(1);
    std::signal(SIGTTOU, SIG_IGN);  // it takes the terminal back from the background
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTSTP);
    ::sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
    std::signal(SIGTSTP, SIG_DFL);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(kMostSeconds);
      if (::setpgid(0, 0) != 0 || ::tcsetpgrp(STDERR_FILENO, ::getpgrp()) != 0) ::_exit(2);
      try {
        job();
      } catch (...) {
        ::_exit(5);
      }
      ::_exit(0);
    }
    int status = 0;
    for (int stop = 0; stop < stops; ++stop) {
      if (::waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) ::_exit(3);
      ::tcsetpgrp(STDERR_FILENO, ::getpgrp());
      (void)!::write(STDOUT_FILENO, "the shell\n", 10);
      if (to_foreground) ::tcsetpgrp(STDERR_FILENO, child);
      ::kill(child, SIGCONT);
    }
    ::_exit(::waitpid(child, &status, WUNTRACED) == child && status == 0 ? 0 : 4);
  }
  int status = 0;
  REQUIRE(::waitpid(shell, &status, 0) == shell);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("Ctrl-Z erases the block before the process stops, and the next show() draws it again") {
  PseudoTerminal terminal;
  const int code = run_job(3, true, [] {
    {
      LiveBlock block(STDERR_FILENO, ::getpgrp());
      for (int stop = 0; stop < 2; ++stop) {
        block.show({"a bar", "a curve"});
        ::raise(SIGTSTP);
      }
      block.show({"a later bar"});
      write_stdout("a result\n");
    }
    ::raise(SIGTSTP);  // the block is gone: as without a handler
  });
  const auto text = terminal.written();
  terminal.restore();
  CHECK(code == 0);
  CHECK(text.find("a curve") != std::string::npos);
  CHECK(text.find("a later bar") != std::string::npos);
  Screen screen(40, 8);
  screen.feed(text);
  CHECK(screen.text() == Lines{"the shell", "the shell", "a result", "the shell"});
}

TEST_CASE("a stopped program that goes on in the background touches no line of the shell") {
  PseudoTerminal terminal;
  const int code = run_job(1, false, [] {
    const InterruptGuard guard("the current step");
    LiveBlock block(STDERR_FILENO, ::getpgrp());
    block.show({"a bar"});
    ::raise(SIGTSTP);
    block.show({"a later bar"});
    ::raise(SIGTERM);
  });
  const auto text = terminal.written();
  terminal.restore();
  CHECK(code == 0);
  const auto shell = text.find("the shell");
  REQUIRE(shell != std::string::npos);
  CHECK(text.substr(0, shell).find("a bar") != std::string::npos);
  CHECK(text.substr(shell).starts_with("the shell\r\n\r\nlockstep: SIGTERM noted"));
}

TEST_CASE("SIGTSTP that was ignored stays ignored") {
  PseudoTerminal terminal;
  const int code = run_job(0, true, [] {
    std::signal(SIGTSTP, SIG_IGN);
    {
      LiveBlock block(STDERR_FILENO, ::getpgrp());
      block.show({"a bar"});
      ::raise(SIGTSTP);
    }
    ::raise(SIGTSTP);
  });
  terminal.restore();
  CHECK(code == 0);
}

TEST_CASE("Ctrl-Z while another thread draws leaves nothing of the block, and is never lost") {
  constexpr int kStops = 20;
  static std::atomic<int> continued = 0;
  PseudoTerminal terminal;
  const int code = run_job(kStops, true, [] {
    std::signal(SIGCONT, [](int) { ++continued; });
    LiveBlock block(STDERR_FILENO, ::getpgrp());
    std::thread drawing([&] {
      for (int drawn = 0; continued < kStops; std::this_thread::yield()) {
        if (drawn == 4 * (continued + 1)) continue;  // the terminal holds 4096 bytes
        block.show({"a bar", "a curve"});
        ++drawn;
      }
    });
    for (int stop = 0; stop < kStops; ++stop) {
      ::kill(::getpid(), SIGTSTP);
      while (continued <= stop) std::this_thread::yield();
    }
    drawing.join();
  });
  const auto text = terminal.written();
  terminal.restore();
  CHECK(code == 0);
  Screen screen(40, kStops + 4);
  screen.feed(text);
  CHECK(screen.text() == Lines(kStops, "the shell"));
}
