#include <lockstep/support/new_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string message_of(int error) { return std::generic_category().message(error); }

[[noreturn]] void cannot_write(const fs::path& path, const std::string& why, const std::string& hint = {}) {
  throw OutputError(fmt::format("cannot write '{}': {}", path.native(), why), hint);
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

// Where the file is to stand, links followed. Throws unless there is none, or one that may be replaced.
fs::path target_of(const fs::path& path, bool overwrite) {
  std::error_code error;
  fs::path target = path;
  if (fs::is_symlink(path, error)) {
    target = fs::canonical(path, error);
    if (error) cannot_write(path, error.message());
  }
  const auto status = fs::status(target, error);
  if (status.type() == fs::file_type::none) cannot_write(path, error.message());
  if (fs::is_directory(status)) cannot_write(path, "it is a folder, not a file");
  if (fs::exists(status)) {
    // Renaming would replace even a device.
    if (!fs::is_regular_file(status)) cannot_write(path, "it is not a regular file");
    if (!overwrite)
      throw OutputError(fmt::format("'{}' already exists", path.native()),
                        "choose another name, or replace it with --overwrite");
    if (::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) cannot_write(path, message_of(errno));
  } else if (!target.has_filename()) {
    cannot_write(path, "it names no file");
  } else if (const auto folder = folder_of(target);
             fs::status(folder, error).type() == fs::file_type::not_found) {
    cannot_write(path, fmt::format("the folder '{}' does not exist", folder.native()),
                 fmt::format("create it first: mkdir -p '{}'", folder.native()));
  }
  return target;
}

}  // namespace

NewFile::NewFile(const fs::path& path, bool overwrite)
    : path_(path), target_(target_of(path, overwrite)), fd_(create()) {
  struct stat old {};
  if (::stat(target_.c_str(), &old) == 0) (void)::fchmod(fd_, old.st_mode & 0777);
}

NewFile::~NewFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  ::close(fd_);
}

void NewFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto count = ::write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) cannot_write(path_, message_of(errno));
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void NewFile::put_in_place() {
  // The disk first, then the name: a machine that stops in between has the old file whole.
  if (::fsync(fd_) != 0 || ::rename(temporary_.c_str(), target_.c_str()) != 0)
    cannot_write(path_, message_of(errno));
  temporary_.clear();
  // The new name to the disk as well; without it a crash leaves the old file, and some systems cannot.
  const int folder = ::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  (void)::fsync(folder);
  ::close(folder);
}

// In the same folder, since only within a file system can a file be renamed.
int NewFile::create() {
  for (int n = 0;; ++n) {
    auto name = folder_of(target_) / fmt::format(".lockstep-{}-{}.tmp", ::getpid(), n);
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);  // less the umask
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) cannot_write(path_, message_of(errno));
    temporary_ = std::move(name);
    return fd;
  }
}

}  // namespace lockstep
