#include <lockstep/support/temporary_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".tmp";

// ".lockstep-HOST-", the beginning of all names made on this host.
std::string beginning_of_names() {
  utsname host{};
  (void)::uname(&host);
  std::string name(host.nodename);
  for (char& letter : name) {
    if (letter == '/') letter = '_';
  }
  return fmt::format(".lockstep-{}-", name);
}

bool same(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

// Whether the open file is still what stands under this name.
bool still_named(int fd, const fs::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && same(open, named);
}

// A writer holds its file's lock from the first moment to the last, so a lock that can be had tells that it
// is gone. Whoever removes a file does it with the lock held, so nobody removes one that is not its own.
void remove_if_left(const fs::path& path) {
  // Whatever a stranger may have put there under such a name: no link is followed, no pipe waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  struct stat info {};
  const bool ours = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid();
  if (ours && ::flock(fd, LOCK_EX | LOCK_NB) == 0 && still_named(fd, path)) ::unlink(path.c_str());
  ::close(fd);
}

[[noreturn]] void fail(int error) { throw std::system_error(error, std::generic_category()); }

}  // namespace

TemporaryFile create_temporary(const fs::path& folder) {
  const auto beginning = beginning_of_names();
  for (int n = 0;; ++n) {
    auto path = folder / fmt::format("{}{}-{}{}", beginning, ::getpid(), n, kEnding);
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);  // less the umask
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) fail(errno);
    // Somebody who tidies up may have seen it before it was locked: then he has the lock, or it is gone. A
    // file system without locks has none for him either.
    const bool taken = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && still_named(fd, path)) return {std::move(path), fd};
    ::close(fd);
  }
}

void remove_left_temporaries(const fs::path& folder) noexcept {
  try {
    const auto beginning = beginning_of_names();
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      const auto& path = entry->path();
      const auto name = path.filename().native();
      if (name.rfind(beginning, 0) == 0 && path.extension() == kEnding) remove_if_left(path);
    }
  } catch (const std::exception&) {  // out of memory: another time
    return;
  }
}

int rename_over(const fs::path& from, const fs::path& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

int rename_to_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system that does not know this (NFS) has hard links, mostly: a second name is never that of a file
  // that is there.
  if (::link(from.c_str(), to.c_str()) == 0) {
    ::unlink(from.c_str());
    return 0;
  }
  if (errno == EEXIST) return errno;
  // Neither: look, then rename. A file that appears in between is lost.
  struct stat info {};
  return ::lstat(to.c_str(), &info) == 0 ? EEXIST : rename_over(from, to);
}

}  // namespace lockstep
