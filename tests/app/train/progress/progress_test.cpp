// --progress: what a terminal holds at the end of a run, and what is refused.
#include <sys/ioctl.h>

#include <lockstep/tests/catch.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <regex>
#include <string>

#include <lockstep/tests/app/terminal/screen.h>
#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

void set_size(int terminal, int columns, int rows) {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = static_cast<unsigned short>(rows);
  REQUIRE(::ioctl(terminal, TIOCSWINSZ, &size) == 0);
}

// A run on a terminal of 80 columns, which gets 200 at the first drawing.
Process on_terminal(const Words& words) {
  auto process = train(words);
  process.on_terminal = true;
  process.environment = {{"TERM", "xterm"}, {"LC_ALL", "C.UTF-8"}};
  const auto terminal = std::make_shared<int>(-1);
  process.on_terminal_made = [terminal](int fd) {
    *terminal = fd;
    set_size(fd, 80, 30);
  };
  process.on_output = [terminal](pid_t, const std::string& out) {
    if (*terminal < 0 || out.find("epoch 1/") == std::string::npos) return;
    set_size(*terminal, 200, 30);
    *terminal = -1;
  };
  return process;
}

// The lines of the screen. It has 200 columns from the start: no line of 80 is then broken.
Words final_lines(const std::string& out) {
  Screen screen(200, 30);
  screen.feed(out);
  CHECK(screen.wrapped() == 0);
  CHECK(screen.column() == 0);
  return screen.text();
}

// Times, speeds and memory differ from run to run.
Words without_times(Words lines) {
  for (auto& line : lines) {
    line = std::regex_replace(line, std::regex(R"(\d+\.\d (s|sec/epoch)\b|\d+\.\d\b(?=,|$)|\d+ MB)"), "#");
  }
  return lines;
}

}  // namespace

TEST_CASE("a terminal holds the plain lines after a run with a bar, also when it was resized") {
  const Words run = {"--epochs", "3", "--limit-test", "2000", "--print-weights-hash"};
  const auto bar = run_process(on_terminal(run));
  CHECK(bar.exit_code == 0);
  const auto none = run_process(on_terminal(run + Words{"--progress", "none"}));
  CHECK(without_times(final_lines(bar.out)) == without_times(final_lines(none.out)));
  CHECK_THAT(none.out, !ContainsSubstring("\x1b[") && !ContainsSubstring("| step "));
  CHECK_THAT(none.out, ContainsSubstring("\nepoch 3/3 | train loss "));

  // The bar: of the first epoch, later with the curve, and wider. Line by line as it was drawn.
  CHECK_THAT(bar.out, ContainsSubstring("\repoch 1/3 ") && ContainsSubstring("\repoch 3/3 "));
  CHECK_THAT(bar.out, ContainsSubstring("\x1b[11A"));
  const auto third = bar.out.substr(bar.out.find("\repoch 3/3 "));
  const auto cells = third.substr(0, third.find('%'));
  CHECK(std::ranges::count(cells, '\xe2') + std::ranges::count(cells, ' ') > 40);  // blocks and blanks
}

TEST_CASE("Ctrl-C leaves the curve, and nothing of the bar") {
  auto process = train({"--epochs", "1000"});
  process.on_terminal = true;
  process.environment = {{"TERM", "xterm"}, {"LC_ALL", "C"}};
  const auto result = stopped_at("epoch    3/1000", SIGINT, process);
  CHECK(result.exit_code == 130);
  CHECK_THAT(result.out, ContainsSubstring("#....") || ContainsSubstring("....."));
  const auto lines = final_lines(result.out);
  const auto noted = std::ranges::find_if(
      lines, [](const auto& line) { return line.starts_with("lockstep: Ctrl-C noted, waiting for "); });
  REQUIRE(noted != lines.end());
  CHECK(lines.back().find("stopped by Ctrl-C") != std::string::npos);
  CHECK(std::ranges::count_if(lines, [](const auto& line) { return line.starts_with("test acc "); }) == 1);
  for (const auto& line : lines) {
    CHECK(line.find("...  ") == std::string::npos);
    CHECK(line.find(" left") == std::string::npos);
  }
}

TEST_CASE("a dumb terminal gets plain lines, and NO_COLOR a bar without colour") {
  auto process = train({"--epochs", "1"});
  process.on_terminal = true;
  process.environment = {{"TERM", "dumb"}};
  const auto dumb = run_process(process).out;
  CHECK_THAT(dumb, !ContainsSubstring("\x1b") && ContainsSubstring("\nepoch 1/1 | step 5/5 "));
  process.environment = {{"TERM", "xterm"}, {"NO_COLOR", "1"}, {"LC_ALL", "C"}};
  const auto plain = run_process(process).out;
  CHECK_THAT(plain, ContainsSubstring("\x1b[J") && !ContainsSubstring("\x1b[36m"));
  CHECK_THAT(plain, ContainsSubstring("\repoch 1/1 ....."));
}

TEST_CASE("a bar is refused without a terminal, and beside --quiet") {
  CHECK(refusal(train({"--progress", "bar"}), 2) ==
        "lockstep: error: --progress bar draws on standard error, which is no terminal that can show it\n"
        "hint: leave it out: by default a bar is drawn where that is possible\n");
  for (const auto* kind : {"bar", "plain"}) {
    CHECK_THAT(refusal(train({"--progress", kind, "--quiet"}), 2),
               ContainsSubstring("--quiet cannot be combined with --progress bar or plain"));
  }
  CHECK_THAT(refusal(train({"--progress", "plain", "--metrics", "-"}), 2),
             ContainsSubstring("--progress plain cannot be combined with --metrics -"));
}

TEST_CASE("process 0 of several shows the bar, and the weights are the same") {
  const auto launched = [](const std::string& progress) {
    auto process = train({"--epochs", "2", "--print-weights-hash", "--progress", progress});
    process.command.insert(process.command.begin() + 1, {"launch", "-n", "2", "--"});
    process.on_terminal = true;
    process.environment = {{"TERM", "xterm"}};
    return run_process(process);
  };
  const auto bar = launched("bar"), none = launched("none");
  CHECK(bar.exit_code == 0);
  CHECK_THAT(bar.out, ContainsSubstring("\x1b[J"));
  const auto lines = final_lines(bar.out), expected = final_lines(none.out);
  CHECK(without_times(lines) == without_times(expected));
  CHECK(std::ranges::any_of(lines, [](const auto& line) { return line.starts_with("weights sha256: "); }));
}
