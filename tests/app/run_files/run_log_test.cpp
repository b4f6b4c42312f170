// train.log.
#include <sys/resource.h>

#include <lockstep/tests/catch.h>

#include <csignal>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/app/run_files/run_log.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// The lines of the file. Each must begin with a date and time, which is left out.
std::string unstamped(const std::string& text) {
  static const std::regex kStamp("^\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d (.*)$");
  std::string rest;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    INFO(line);
    REQUIRE(std::regex_match(line, match, kStamp));
    rest += match[1].str() + "\n";
  }
  return rest;
}

}  // namespace

TEST_CASE("the log has every line with date and time, those before it was opened first") {
  const TempFolder folder;
  const auto path = folder / "train.log";
  RunLog log;
  log.write("the plan\n  in two lines\n");
  warn("a threat");
  log.open(path);
  log.write("epoch 1\n    lr 0.2");
  inform("at work");
  CHECK(unstamped(read_file(path)) ==
        "the plan\n  in two lines\nwarning: a threat\nepoch 1\n    lr 0.2\nat work\n");
}

TEST_CASE("a resumed run appends to the log, and leaves a line that was cut by a kill alone") {
  const TempFolder folder;
  const auto path = folder / "train.log";
  {
    RunLog first;
    first.open(path);
    first.write("one");
  }
  warn("between two runs");  // nobody's
  const auto cut = read_file(path) + "2026-01-01 10:0";
  write_file(path, cut);
  RunLog second;
  second.write("two");
  second.open(path);
  const auto text = read_file(path);
  REQUIRE(text.starts_with(cut + "\n"));
  CHECK(unstamped(text.substr(cut.size() + 1)) == "two\n");
}

TEST_CASE("messages of several threads do not mix in the log") {
  const TempFolder folder;
  const std::string line(200, 'x');
  RunLog log;
  log.open(folder / "train.log");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int count = 0; count < 50; ++count) log.write(line);
    });
  }
  for (auto& thread : threads) thread.join();
  std::string expected;
  for (int i = 0; i < 200; ++i) expected.append(line).append("\n");
  CHECK(unstamped(read_file(folder / "train.log")) == expected);
}

TEST_CASE("a log that cannot be written is an error of the next line, also for messages") {
  const TempFolder folder;
  CHECK_THROWS_AS(RunLog().open(folder / "none/train.log"), OutputError);
  RunLog log;
  log.open(folder / "train.log");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  auto none = before;
  none.rlim_cur = 0;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  inform("nobody can write this");
  CHECK_THROWS_AS(log.write("nor this"), OutputError);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old);
  log.write("again");
  CHECK(unstamped(read_file(folder / "train.log")) == "again\n");
}
