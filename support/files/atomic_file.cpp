#include <lockstep/support/files/atomic_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <lockstep/support/error.h>
#include <lockstep/support/files/output_failure.h>
#include <lockstep/support/files/temporary_file.h>
#include <lockstep/support/files/write_all.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_write(const fs::path& path, const std::string& why, const std::string& hint = {}) {
  throw OutputError(fmt::format("cannot write '{}': {}", path.native(), why), hint);
}

// error: errno
[[noreturn]] void cannot_write(const fs::path& path, int error) {
  throw output_failure(fmt::format("cannot write '{}'", path.native()), error);
}

[[noreturn]] void already_exists(const fs::path& path) {
  throw OutputError(
      fmt::format("'{}' already exists", path.native()),
      "choose another name, or replace it with " + NamedOption{"overwrite", "", "overwrite = true"});
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

// The file to write, with links followed. Throws OutputError if it cannot be created or replaced.
fs::path target_of(const fs::path& path, bool overwrite) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (status.type() == fs::file_type::none) cannot_write(path, error.value());
  if (fs::is_directory(status)) cannot_write(path, "it is a folder, not a file");
  if (fs::is_other(status)) return path;  // the target of the link /dev/stdout may have no path
  fs::path target = path;
  if (fs::is_symlink(path, error)) {
    target = fs::canonical(path, error);
    if (error) cannot_write(path, error.value());
  }
  if (fs::exists(status)) {
    if (!overwrite) already_exists(path);
    if (::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) cannot_write(path, errno);
  } else if (!target.has_filename()) {
    cannot_write(path, "the path names no file");
  } else if (const auto folder = folder_of(target);
             fs::status(folder, error).type() == fs::file_type::not_found) {
    cannot_write(path, fmt::format("the folder '{}' does not exist", folder.native()),
                 fmt::format("create it first: mkdir -p '{}'", folder.native()));
  }
  return target;
}

bool is_device(const fs::path& path) {
  std::error_code ignored;
  return fs::is_other(fs::status(path, ignored));
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path, bool overwrite)
    : path_(path), overwrite_(overwrite), target_(target_of(path, overwrite)), regular_(!is_device(target_)) {
  if (regular_) {
    remove_stale_temporaries(folder_of(target_));
    create();
    discard();  // the first write() creates it again
    return;
  }
  fd_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (fd_ < 0) cannot_write(path_, errno);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::create() {
  try {
    auto file = create_temporary(folder_of(target_));
    temporary_ = std::move(file.path);
    fd_ = file.fd;
  } catch (const std::system_error& error) {
    cannot_write(path_, error.code().value());
  }
  struct stat old {};
  if (::stat(target_.c_str(), &old) == 0) (void)::fchmod(fd_, old.st_mode & 0777);
}

void AtomicFile::discard() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());  // before close() releases the lock
  temporary_.clear();
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (fd_ < 0) create();
  const auto written = write_all(fd_, bytes);
  if (written.error == 0) return;
  undo_write(written.bytes);
  cannot_write(path_, written.error);
}

// Removes the part of a line that was written before an error.
void AtomicFile::undo_write(size_t bytes) {
  if (!regular_) return;
  const auto end = ::lseek(fd_, -static_cast<off_t>(bytes), SEEK_CUR);
  if (end >= 0) (void)!::ftruncate(fd_, end);
}

void AtomicFile::commit() {
  if (!regular_) return;
  if (fd_ < 0) create();  // an empty file
  // The content reaches the disk before the name changes: after a crash the old file is still whole.
  if (::fsync(fd_) != 0) cannot_write(path_, errno);
  const int error = overwrite_ ? rename_over(temporary_, target_) : rename_to_new(temporary_, target_);
  if (error == EEXIST) already_exists(path_);
  if (error != 0) cannot_write(path_, error);
  temporary_.clear();
  fsync_folder(folder_of(target_));
}

void need_regular_file(const fs::path& path) {
  if (is_device(path)) cannot_write(path, "it is not a regular file");
}

}  // namespace lockstep
