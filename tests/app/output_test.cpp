// Files of results, signals, and what an output stream can show.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include <lockstep/app/interrupt.h>
#include <lockstep/app/output_file.h>
#include <lockstep/app/terminal.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;
namespace fs = std::filesystem;

namespace {

void write_file(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

std::string read_file(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What opening throws.
OutputError refusal(const fs::path& path, bool overwrite) {
  try {
    OutputFile file(path.string(), overwrite);
  } catch (const OutputError& error) {
    return error;
  }
  FAIL("opened " << path);
  throw;
}

}  // namespace

TEST_CASE("lines are in the file as soon as they are written") {
  const TempFolder folder;
  OutputFile file((folder / "a.jsonl").string(), false);
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
  CHECK_THAT(error.hint(), ContainsSubstring("--overwrite"));
  CHECK(read_file(folder / "a.jsonl") == "old\n");
}

TEST_CASE("an overwritten file keeps its content until the first line comes") {
  const TempFolder folder;
  write_file(folder / "a.jsonl", "old, and longer than the new content\n");
  { const OutputFile unused((folder / "a.jsonl").string(), true); }
  CHECK(read_file(folder / "a.jsonl") == "old, and longer than the new content\n");
  OutputFile file((folder / "a.jsonl").string(), true);
  file.append_line("new");
  CHECK(read_file(folder / "a.jsonl") == "new\n");
}

TEST_CASE("nothing is left of a run that wrote nothing") {
  const TempFolder folder;
  for (const bool overwrite : {false, true}) {
    { const OutputFile unused((folder / "a.jsonl").string(), overwrite); }
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
  OutputFile file("/dev/full", false);  // devices need no --overwrite
  CHECK_THROWS_WITH(file.append_line("x"), ContainsSubstring("/dev/full") && ContainsSubstring("No space left"));
}

TEST_CASE("the first signal is noted, and the old handlers come back") {
  REQUIRE(std::signal(SIGINT, SIG_IGN) != SIG_ERR);
  REQUIRE(std::signal(SIGTERM, SIG_DFL) != SIG_ERR);
  {
    const InterruptGuard guard;
    CHECK_FALSE(guard.signal());
    raise(SIGINT);
    CHECK_FALSE(guard.signal());  // it was ignored before, as under nohup
    raise(SIGTERM);
    CHECK(guard.signal() == SIGTERM);
  }
  CHECK(std::signal(SIGINT, SIG_DFL) == SIG_IGN);
  CHECK(std::signal(SIGTERM, SIG_DFL) == SIG_DFL);
  const InterruptGuard next;
  CHECK_FALSE(next.signal());
}

TEST_CASE("the second signal ends the process") {
  const pid_t child = fork();
  if (child == 0) {
    const InterruptGuard guard;
    raise(SIGINT);
    if (guard.signal() != SIGINT) _exit(1);
    raise(SIGTERM);
    _exit(2);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
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
