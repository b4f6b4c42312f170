// Files that appear whole or not at all, and temporary files of killed processes.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <lockstep/tests/catch.h>
#include <cerrno>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/support/error.h>
#include <lockstep/support/files/atomic_file.h>
#include <lockstep/support/files/temporary_file.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::files_in;
using lockstep::testing::read_file;
using lockstep::testing::TempFolder;
using lockstep::testing::write_file;
namespace fs = std::filesystem;

namespace {

// The exit status of a process that runs `task`; 0: success.
int status_of(const std::function<void()>& task) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      task();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

std::string host() {
  utsname names{};
  uname(&names);
  return names.nodename;
}

// From now on these system calls of this process fail with these errors.
void refuse_calls(const std::vector<std::pair<int, int>>& errors) {
  std::vector<sock_filter> program = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const auto& [call, error] : errors) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    throw std::runtime_error("no seccomp");
}

}  // namespace

TEST_CASE("commit gives a file its name, and later writes append to it") {
  const TempFolder folder;
  AtomicFile file(folder / "a", false);
  CHECK(fs::is_empty(folder.path()));
  file.write("one ");
  CHECK_FALSE(fs::exists(folder / "a"));
  file.commit();
  CHECK(read_file(folder / "a") == "one ");
  file.write("two");
  CHECK(read_file(folder / "a") == "one two");
  CHECK(files_in(folder) == 1);
}

TEST_CASE("commit replaces a file that has appeared meanwhile only with overwrite") {
  const bool overwrite = GENERATE(false, true);
  const TempFolder folder;
  {
    AtomicFile file(folder / "a", overwrite);
    file.write("new");
    write_file(folder / "a", "old");
    if (overwrite) {
      file.commit();
    } else {
      CHECK_THROWS_WITH(file.commit(), ContainsSubstring("already exists"));
    }
  }
  CHECK(read_file(folder / "a") == (overwrite ? "new" : "old"));
  CHECK(files_in(folder) == 1);
}

// As on file systems that support only one of these calls, or none.
TEST_CASE("rename_to_new replaces nothing with renameat2, with link, and with neither") {
  std::vector<std::pair<int, int>> refused;
  const int known = GENERATE(0, 1, 2);
  if (known > 0) refused.emplace_back(SYS_renameat2, EINVAL);
  if (known > 1) {
    refused.emplace_back(SYS_linkat, EPERM);
#ifdef SYS_link
    refused.emplace_back(SYS_link, EPERM);
#endif
  }
  const TempFolder folder;
  const auto from = folder / "from", to = folder / "to", other = folder / "other";
  write_file(from, "new");
  write_file(to, "old");
  const int status = status_of([&] {
    refuse_calls(refused);
    if (rename_to_new(from, to) != EEXIST) _exit(2);
    if (rename_to_new(from, other) != 0) _exit(3);
    if (rename_to_new(folder / "none", folder / "new") != ENOENT) _exit(4);
  });
  CHECK(status == 0);
  CHECK(read_file(to) == "old");
  CHECK(read_file(other) == "new");
  CHECK(files_in(folder) == 2);
}

TEST_CASE("the next AtomicFile in a folder removes the temporary file of a killed process") {
  const TempFolder folder;
  const int status = status_of([&] {
    AtomicFile file(folder / "a", false);
    file.write("half");
    raise(SIGKILL);
  });
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(files_in(folder) == 1);
  CHECK_THAT(fs::directory_iterator(folder.path())->path().filename().string(),
             ContainsSubstring(".lockstep-" + host() + "-"));
  { const AtomicFile next(folder / "b", false); }
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("the temporary file of a live process is kept") {
  const TempFolder folder;
  int writes[2], ends[2];  // pipes: the child has written; it may end
  REQUIRE((pipe(writes) == 0 && pipe(ends) == 0));
  const pid_t child = fork();
  if (child == 0) {
    char byte = 'x';
    AtomicFile file(folder / "a", false);
    file.write("whole");
    if (write(writes[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1) _exit(1);
    try {
      file.commit();
    } catch (...) {
      _exit(2);
    }
    _exit(0);
  }
  char byte;
  REQUIRE(read(writes[0], &byte, 1) == 1);
  {
    AtomicFile next(folder / "b", false);
    next.write("next");
    next.commit();
  }
  CHECK(files_in(folder) == 2);
  REQUIRE(write(ends[1], &byte, 1) == 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(read_file(folder / "a") == "whole");
  for (const int fd : {writes[0], writes[1], ends[0], ends[1]}) ::close(fd);
}

TEST_CASE("only temporary files and folders of this host and user are removed, whatever their process id") {
  const TempFolder folder;
  const auto prefix = fs::path(".lockstep-" + host());
  const auto named = [&](const std::string& end) { return folder / (prefix.string() + end); };
  write_file(named(fmt::format("-{}-7.tmp", getpid())), "a number that is in use again");
  write_file(folder / ".lockstep-elsewhere.example-1-0.tmp", "another host's");
  write_file(folder / "w-1-0.tmp", "somebody's");
  write_file(folder / "outside", "linked to");
  fs::create_symlink("outside", named("-1-1.tmp"));
  fs::create_directory(named("-1-2.tmp"));
  write_file(named("-1-2.tmp") / "half", "a checkpoint's");
  fs::create_directory(folder / "w-1-2.tmp");
  REQUIRE(mkfifo(named("-1-3.tmp").c_str(), 0600) == 0);
  size_t kept = 6;
  if (geteuid() == 0) {  // only root can make such a file
    write_file(named("-1-4.tmp"), "another user's");
    REQUIRE(chown(named("-1-4.tmp").c_str(), 65534, 65534) == 0);
    ++kept;
  }
  { const AtomicFile next(folder / "b", false); }
  CHECK_FALSE(fs::exists(named(fmt::format("-{}-7.tmp", getpid()))));
  CHECK_FALSE(fs::exists(named("-1-2.tmp")));
  CHECK(files_in(folder) == kept);
}

TEST_CASE("a pipe is written directly") {
  const TempFolder folder;
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  std::string got;
  std::thread reader([&] { got = read_file(folder / "pipe"); });
  {
    AtomicFile file(folder / "pipe", false);  // a pipe needs no overwrite
    file.write("all");
    file.commit();
  }
  reader.join();
  CHECK(got == "all");
  CHECK(files_in(folder) == 1);
  CHECK_THROWS_WITH(need_regular_file(folder / "pipe"), ContainsSubstring("not a regular file"));
}
