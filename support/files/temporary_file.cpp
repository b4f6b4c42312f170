#include <lockstep/support/files/temporary_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBeginning = ".lockstep-";
constexpr const char* kEnding = ".tmp";

// ".lockstep-HOST-", the prefix of all names on this host.
std::string name_prefix() {
  utsname host{};
  (void)::uname(&host);
  std::string name(host.nodename);
  for (char& letter : name) {
    if (letter == '/') letter = '_';
  }
  return fmt::format("{}{}-", kBeginning, name);
}

bool same(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

// Returns true if `path` still names the open file.
bool still_named(int fd, const fs::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && same(open, named);
}

// A writer holds its file's lock as long as it lives, so a free lock means that the writer is gone. The file
// is removed with the lock held, so no other process can take it meanwhile.
void remove_if_stale(const fs::path& path) {
  // O_NOFOLLOW and O_NONBLOCK: someone else's link or pipe may have such a name.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  struct stat info {};
  const bool known = ::fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode));
  if (known && info.st_uid == ::geteuid() && ::flock(fd, LOCK_EX | LOCK_NB) == 0 && still_named(fd, path)) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  ::close(fd);
}

[[noreturn]] void fail(int error) { throw std::system_error(error, std::generic_category()); }

// open(path): makes the file or folder `path`, which must be new, and opens it. Returns -1 and sets errno.
template <class Open>
TemporaryFile create(const fs::path& folder, const Open& open) {
  const auto prefix = name_prefix();
  for (int n = 0;; ++n) {
    auto path = folder / fmt::format("{}{}-{}{}", prefix, ::getpid(), n, kEnding);
    const int fd = open(path);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) fail(errno);
    // Another process may remove the file before it is locked; then try the next name. On a file system
    // without locks no process can.
    const bool taken = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && still_named(fd, path)) return {std::move(path), fd};
    ::close(fd);
  }
}

}  // namespace

TemporaryFile create_temporary(const fs::path& folder) {
  return create(folder, [](const fs::path& path) {
    return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);  // minus the umask
  });
}

TemporaryFile create_temporary_folder(const fs::path& folder) {
  return create(folder, [](const fs::path& path) {
    if (::mkdir(path.c_str(), 0777) != 0) return -1;
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Another process may have removed it as a dead one's: it is not locked yet. Then try the next name.
    if (fd < 0 && errno == ENOENT) errno = EEXIST;
    return fd;
  });
}

bool is_temporary(const fs::path& name) { return name.native().starts_with(kBeginning); }

void remove_stale_temporaries(const fs::path& folder) noexcept {
  try {
    const auto prefix = name_prefix();
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      const auto& path = entry->path();
      const auto name = path.filename().native();
      if (name.rfind(prefix, 0) == 0 && path.extension() == kEnding) remove_if_stale(path);
    }
  } catch (const std::exception&) {  // out of memory: the next call removes them
    return;
  }
}

void fsync_folder(const fs::path& folder) noexcept {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)::fsync(fd);
  ::close(fd);
}

int rename_over(const fs::path& from, const fs::path& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

int rename_to_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // File systems that do not support this (NFS) mostly have hard links, and link() never replaces a file.
  if (::link(from.c_str(), to.c_str()) == 0) {
    ::unlink(from.c_str());
    return 0;
  }
  if (errno == EEXIST) return errno;
  // Without either: check, then rename. A file that appears in between is lost.
  struct stat info {};
  return ::lstat(to.c_str(), &info) == 0 ? EEXIST : rename_over(from, to);
}

}  // namespace lockstep
