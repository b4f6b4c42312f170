#include <lockstep/app/output_file.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <lockstep/app/suggest.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr mode_t kPermissions = 0666;  // less the user's umask

bool is_regular(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

[[noreturn]] void cannot_open(const std::string& path, int error) {
  std::error_code ignored;
  const auto folder = std::filesystem::path(path).parent_path();
  if (std::filesystem::is_directory(path, ignored)) {
    throw OutputError(fmt::format("cannot write {}: it is a folder, not a file", in_quotes(path)));
  }
  if (!folder.empty() && !std::filesystem::exists(folder, ignored)) {
    throw OutputError(fmt::format("cannot write {}: the folder {} does not exist", in_quotes(path),
                                  in_quotes(folder.native())),
                      fmt::format("create it first: mkdir -p {}", in_quotes(folder.native())));
  }
  throw OutputError(fmt::format("cannot write {}: {}", in_quotes(path), std::strerror(error)));
}

}  // namespace

OutputFile::OutputFile(std::string path, bool overwrite) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kPermissions);
  created_ = fd_ >= 0;
  // Not truncated here: the old content goes when the first line comes.
  if (!created_ && errno == EEXIST) fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd_ < 0) cannot_open(path_, errno);
  if (!created_ && !overwrite && is_regular(fd_)) {
    ::close(fd_);
    throw OutputError(fmt::format("{} already exists", in_quotes(path_)),
                      "choose another name, or replace it with --overwrite");
  }
}

OutputFile::~OutputFile() {
  ::close(fd_);
  if (created_ && !written_) ::unlink(path_.c_str());
}

void OutputFile::append_line(std::string_view line) {
  const auto text = fmt::format("{}\n", line);
  std::string_view bytes = text;
  if (!written_ && is_regular(fd_) && ftruncate(fd_, 0) != 0) cannot_open(path_, errno);
  written_ = true;
  while (!bytes.empty()) {
    const auto count = ::write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw OutputError(fmt::format("cannot write to {}: {}", in_quotes(path_), std::strerror(errno)));
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace lockstep
