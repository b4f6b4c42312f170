// Files of results, signals, and what an output stream can show.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/files/distinct_files.h>
#include <lockstep/app/files/line_file.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::read_file;
using lockstep::testing::TempFolder;
using lockstep::testing::write_file;
namespace fs = std::filesystem;

namespace {

// What opening throws.
OutputError refusal(const fs::path& path, bool overwrite) {
  try {
    LineFile file(path.string(), overwrite);
  } catch (const OutputError& error) {
    return error;
  }
  FAIL("opened " << path);
  throw;
}

// Files of this process are at most so long while it lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit = {bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit old_{};
};

// How a process that runs `task` ends; 0: well.
int status_of(const std::function<void()>& task) {
  const pid_t child = fork();
  if (child == 0) {
    task();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

int signal_after_installing = 0;

}  // namespace

// In place of the C library's: a signal that comes as soon as it is caught.
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

TEST_CASE("lines are in the file as soon as they are written") {
  const TempFolder folder;
  LineFile file((folder / "a.jsonl").string(), false);
  file.append_line("{\"step\": 1}");
  CHECK(read_file(folder / "a.jsonl") == "{\"step\": 1}\n");
  file.append_line("{\"step\": 2}");
  CHECK(read_file(folder / "a.jsonl") == "{\"step\": 1}\n{\"step\": 2}\n");
}

TEST_CASE("an existing file is refused, and kept") {
  const TempFolder folder;
  write_file(folder / "a.jsonl", "old\n");
  const auto error = refusal(folder / "a.jsonl", false);
  CHECK(error.exit_code() == ExitCode::kOutput);
  CHECK_THAT(error.what(), ContainsSubstring("a.jsonl") && ContainsSubstring("already exists"));
  CHECK_THAT(error.hint(), ContainsSubstring("replace it with overwrite = true"));
  CHECK(read_file(folder / "a.jsonl") == "old\n");
}

TEST_CASE("an overwritten file keeps its content until the first line comes") {
  const TempFolder folder;
  write_file(folder / "a.jsonl", "old, and longer than the new content\n");
  { const LineFile unused((folder / "a.jsonl").string(), true); }
  CHECK(read_file(folder / "a.jsonl") == "old, and longer than the new content\n");
  LineFile file((folder / "a.jsonl").string(), true);
  file.append_line("new");
  CHECK(read_file(folder / "a.jsonl") == "new\n");
}

TEST_CASE("nothing is left of a run that wrote nothing") {
  const TempFolder folder;
  for (const bool overwrite : {false, true}) {
    { const LineFile unused((folder / "a.jsonl").string(), overwrite); }
    CHECK(fs::is_empty(folder.path()));
  }
}

TEST_CASE("paths that cannot be written") {
  const TempFolder folder;
  write_file(folder / "file", "");
  for (const bool overwrite : {false, true}) {
    CHECK_THAT(refusal(folder.path(), overwrite).what(), ContainsSubstring("it is a folder"));
    CHECK_THAT(refusal(folder / "none/a.jsonl", overwrite).what(), ContainsSubstring("none' does not exist"));
    CHECK_THAT(refusal(folder / "none/a.jsonl", overwrite).hint(), ContainsSubstring("mkdir -p"));
    CHECK_THAT(refusal(folder / "file/a.jsonl", overwrite).what(), ContainsSubstring("Not a directory"));
    CHECK(refusal("", overwrite).exit_code() == ExitCode::kOutput);
  }
  fs::create_symlink(folder / "nowhere", folder / "link");
  CHECK(refusal(folder / "link", false).exit_code() == ExitCode::kOutput);
  CHECK_FALSE(fs::exists(folder / "nowhere"));
}

TEST_CASE("a full disk is an error") {
  LineFile file("/dev/full", false);  // devices need no --overwrite
  CHECK_THROWS_WITH(file.append_line("x"),
                    ContainsSubstring("/dev/full") && ContainsSubstring("No space left"));
}

TEST_CASE("a disk that is full leaves whole lines, and an old file as it was") {
  const TempFolder folder;
  write_file(folder / "old", "old\n");
  LineFile first((folder / "old").string(), true), next((folder / "new").string(), false);
  next.append_line("12345");
  {
    const FileLimit limit(8);
    CHECK_THROWS_WITH(first.append_line("a longer line"),
                      ContainsSubstring("old") && ContainsSubstring("File too large"));
    CHECK_THROWS_WITH(next.append_line("12345"), ContainsSubstring("File too large"));
  }
  CHECK(read_file(folder / "old") == "old\n");
  CHECK(read_file(folder / "new") == "12345\n");
  next.append_line("6");
  CHECK(read_file(folder / "new") == "12345\n6\n");
}

TEST_CASE("two flags that name one file are refused, however it is spelt") {
  const TempFolder folder;
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  write_file(folder / "file", "");
  fs::create_symlink("file", folder / "link");
  fs::create_hard_link(folder / "file", folder / "second");
  fs::create_directory(folder / "sub");
  fs::create_directory_symlink(".", folder / "same");
  const std::vector<std::pair<std::string, std::string>> one = {
      {"file", "file"}, {"file", "./file"},    {"file", "link"},      {"file", "second"},
      {"new", "new"},   {"new", "sub/../new"}, {"same/new", "./new"}, {"same/file", "link"}};
  for (const auto& [a, b] : one) {
    INFO(a << " and " << b);
    CHECK(same_file(path(a), path(b)));
    CHECK_THROWS_WITH(check_distinct_files({{"--save", path(a)}, {"--json", {}}, {"--trace", path(b)}}),
                      ContainsSubstring("--save") && ContainsSubstring("--trace") &&
                          ContainsSubstring("are the same file"));
    CHECK_THROWS_AS(check_distinct_files({{"--output", path(a)}}, {{"FILE", path(b)}}), UsageError);
  }
  const std::vector<std::pair<std::string, std::string>> two = {
      {"file", "new"}, {"new", "sub/new"}, {"new", "other"}, {"none/new", "none/new"}};
  for (const auto& [a, b] : two) {
    check_distinct_files({{"--save", path(a)}, {"--trace", path(b)}});
    CHECK(same_file(path(a), path(b)) == (a == b));
  }
  check_distinct_files({{"--save", "/dev/null"}, {"--trace", "/dev/null"}});
  check_distinct_files({{"--save", path("a")}}, {{"FILE", path("file")}, {"FILE", path("file")}});
}

TEST_CASE("the first signal is noted, and the old handlers come back") {
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

TEST_CASE("the second signal ends the process within an inner guard, too") {
  const int status = status_of([] {
    const InterruptGuard outer("nothing");
    raise(SIGINT);
    const InterruptGuard inner("nothing");
    if (inner.signal() != SIGINT) _exit(1);
    raise(SIGINT);
  });
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGINT));
}

TEST_CASE("a signal that is ignored stays so when another one has come") {
  const int status = status_of([] {
    std::signal(SIGINT, SIG_IGN);
    const InterruptGuard guard("nothing");
    raise(SIGTERM);
    raise(SIGINT);
    if (guard.signal() != SIGTERM) _exit(1);
  });
  CHECK(status == 0);
}

TEST_CASE("a signal that comes while the guard is being set up is not lost") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = status_of([&] {
      signal_after_installing = signal;
      const InterruptGuard guard("nothing");
      if (guard.signal() != signal) _exit(1);
    });
    CHECK(status == 0);
  }
}

TEST_CASE("a signal that is noted is answered at once, with what is waited for") {
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
        "lockstep: Ctrl-C noted, waiting for the current step; a second signal ends the program at once\n");
}

TEST_CASE("a file is no terminal, and has colours only where they are demanded") {
  const int fd = ::open("/dev/null", O_WRONLY);
  const Terminal plain(fd, ColorMode::kAuto);
  CHECK_FALSE(plain.interactive());
  CHECK(plain.width() == 80);
  CHECK(plain.style().red("x") == "x");
  CHECK(Terminal(fd, ColorMode::kAlways).style().red("x") == "\x1b[1;31mx\x1b[0m");
  ::close(fd);
}

TEST_CASE("the locale decides on UTF-8") {
  setenv("LC_ALL", "C", 1);
  CHECK_FALSE(utf8_locale());
  setenv("LC_ALL", "C.UTF-8", 1);
  CHECK(utf8_locale());
  unsetenv("LC_ALL");
}
