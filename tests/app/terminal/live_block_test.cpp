// Lines drawn in place on a pseudo terminal, whose bytes a small emulator turns into a screen.
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>

#include <csignal>
#include <string>
#include <vector>

#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/live_block.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/tests/app/terminal/pseudo_terminal.h>
#include <lockstep/tests/app/terminal/screen.h>
#include <lockstep/tests/support/redirect.h>

using namespace lockstep;
using lockstep::testing::PseudoTerminal;
using lockstep::testing::Redirect;
using lockstep::testing::Screen;
using Lines = std::vector<std::string>;

// The output of Catch2 must not go into the terminal, which would fill up: checks come after the end of one.
TEST_CASE("lines scroll above a block that is drawn in place, and nothing of it remains") {
  struct Look {
    Lines text;
    Lines expected;
    size_t row, expected_row, column;
  };
  std::vector<Look> looks;
  Screen screen(30, 6);
  {
    PseudoTerminal terminal;
    set_up_logging(Terminal(STDERR_FILENO, ColorMode::kNever));
    Lines above;
    const auto look = [&](const Lines& lines) {
      screen.feed(terminal.written());
      auto all = above;
      all.insert(all.end(), lines.begin(), lines.end());
      looks.push_back({screen.text(), all, screen.row(), above.size(), screen.column()});
    };
    {
      LiveBlock block(STDERR_FILENO, ::getpgrp());
      block.show({"a bar"});
      look({"a bar"});
      block.show({"a longer bar", "and", "a curve"});
      look({"a longer bar", "and", "a curve"});
      for (int i = 0; i < 7; ++i) {  // until the screen scrolls
        above.push_back("epoch " + std::to_string(i));
        write_stdout(above.back() + "\n");
        look({"a longer bar", "and", "a curve"});
      }
      warn("beware");
      inform("by the way");
      above.insert(above.end(), {"lockstep: warning: beware", "lockstep: by the way"});
      look({"a longer bar", "and", "a curve"});
      block.show({"short", "x"});  // fewer and shorter lines
      look({"short", "x"});
      block.erase();
      look({});
      write_stdout("no block\n");
      above.push_back("no block");
      look({});
      block.show({"again", "y"});
      look({"again", "y"});
    }
    look({});
  }
  CHECK(looks.size() == 15);
  for (const auto& [text, expected, row, expected_row, column] : looks) {
    CHECK(text == expected);
    CHECK(row == expected_row);  // the block's first line
    CHECK(column == 0);
  }
  CHECK(screen.wrapped() == 0);
}

TEST_CASE("a block that a resize has broken anew, or cut, is erased whole") {
  const bool breaks_anew = GENERATE(false, true);
  Screen screen(40, 10);
  Lines redrawn;
  {
    PseudoTerminal terminal;
    LiveBlock block(STDERR_FILENO, ::getpgrp());
    write_stdout("first\n");
    block.show({std::string(39, 'x'), std::string(35, 'y')});
    screen.feed(terminal.written());
    terminal.resize(12, 10);
    screen.resize(12, 10, breaks_anew);
    block.show({"abc", "def"});
    screen.feed(terminal.written());
    redrawn = screen.text();
    block.show({std::string(11, 'x'), std::string(11, 'y')});
    screen.feed(terminal.written());
    terminal.resize(6, 10);
    screen.resize(6, 10, breaks_anew);
    write_stdout("2nd\n");  // lines for 12 columns are not drawn on 6
    screen.feed(terminal.written());
  }
  CHECK(screen.wrapped() == 0);
  CHECK(redrawn == Lines{"first", "abc", "def"});
  CHECK(screen.text() == Lines{"first", "2nd"});
}

TEST_CASE("results that go into a file leave the block alone") {
  std::string written;
  {
    PseudoTerminal terminal;
    LiveBlock block(STDERR_FILENO, ::getpgrp());
    block.show({"bar"});
    terminal.written();
    const Redirect file(STDOUT_FILENO, "/dev/null");
    write_stdout("a result\n");
    written = terminal.written();
  }
  CHECK(written.empty());
}

TEST_CASE("a signal's message takes the place of the block, which is not drawn again") {
  PseudoTerminal terminal;
  std::signal(SIGINT, SIG_DFL);
  const pid_t child = ::fork();
  if (child == 0) {
    const InterruptGuard guard("the current step");
    LiveBlock block(STDERR_FILENO, ::getpgrp());
    block.show({"a bar", "a curve"});
    ::raise(SIGINT);
    block.show({"a later bar"});
    write_stdout("a result\n");
    ::raise(SIGINT);  // ends the process at once
    ::_exit(1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGINT));
  Screen screen(200, 5);
  screen.feed(terminal.written());
  terminal.restore();
  CHECK(screen.text() ==
        Lines{"lockstep: Ctrl-C noted, waiting for the current step; a second one ends at once", "a result"});
  CHECK(screen.column() == 0);
}

// A session of its own, whose terminal belongs to another process group, as after `bg`.
TEST_CASE("a program in the background draws nothing, and touches no line of the foreground") {
  PseudoTerminal terminal;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setsid() < 0 || ::ioctl(STDERR_FILENO, TIOCSCTTY, 0) != 0) ::_exit(1);
    const pid_t job = ::fork();
    if (job == 0) {
      ::setpgid(0, 0);
      LiveBlock background(STDERR_FILENO, ::getpgrp());
      background.show({"a bar"});
      write_stdout("a result\n");
      ::_exit(0);
    }
    ::waitpid(job, nullptr, 0);
    LiveBlock foreground(STDERR_FILENO, ::getpgrp());
    foreground.show({"another bar"});
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  const auto text = terminal.written();
  terminal.restore();
  CHECK(text.starts_with("a result\r\n\r"));
  CHECK(text.find("a bar") == std::string::npos);
  CHECK(text.find("another bar") != std::string::npos);
}

TEST_CASE("the test's screen refuses what it does not know") {
  Screen screen(10, 3);
  CHECK_THROWS(screen.feed("\x1b[2J"));
  CHECK_THROWS(screen.feed("\x1b[?25l"));
  CHECK_THROWS(screen.feed("\x1b[3"));
  CHECK_THROWS(screen.feed("\t"));
  screen.feed("0123456789a");
  CHECK(screen.wrapped() == 1);
  CHECK(screen.text() == Lines{"0123456789", "a"});
}
