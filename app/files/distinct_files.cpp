#include <lockstep/app/files/distinct_files.h>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

// Device, inode and "" for an existing file. For a new file: device and inode of its folder, and its name.
using Identity = std::tuple<dev_t, ino_t, std::string>;

std::optional<Identity> identity_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode)) return std::nullopt;
    return Identity(info.st_dev, info.st_ino, "");
  }
  const std::filesystem::path name(path);
  const auto folder = name.has_parent_path() ? name.parent_path() : std::filesystem::path(".");
  if (::stat(folder.c_str(), &info) != 0) return std::nullopt;  // opening the file will fail and say why
  return Identity(info.st_dev, info.st_ino, name.filename().native());
}

std::optional<Identity> identity_of(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return Identity(info.st_dev, info.st_ino, "");
}

struct File {
  std::string name;                  // for messages
  std::optional<std::string> path;   // empty: a standard stream
  std::optional<Identity> identity;  // empty: a device, a pipe, or a file in a folder that does not exist
};

std::vector<File> files_of(const std::vector<FileFlag>& flags) {
  std::vector<File> files;
  for (const auto& [flag, path] : flags) {
    if (path) files.push_back({fmt::format("{} {}", flag, in_quotes(*path)), path, identity_of(*path)});
  }
  return files;
}

bool are_same(const File& a, const File& b) {
  return (a.path && a.path == b.path) || (a.identity && a.identity == b.identity);
}

std::vector<File> standard_streams() {
  std::vector<File> files;
  files.push_back({"standard output", std::nullopt, identity_of(STDOUT_FILENO)});
  files.push_back({"standard error", std::nullopt, identity_of(STDERR_FILENO)});
  return files;
}

}  // namespace

bool same_file(const std::string& a, const std::string& b) {
  return are_same({"", a, identity_of(a)}, {"", b, identity_of(b)});
}

void check_outside_folder(const std::vector<FileFlag>& outputs, const std::string& folder,
                          const std::string& whose) {
  std::error_code error;
  const auto inside = std::filesystem::weakly_canonical(folder, error);
  for (const auto& [flag, path] : outputs) {
    if (!path || error || std::filesystem::is_other(std::filesystem::status(*path, error))) continue;
    const auto file = std::filesystem::weakly_canonical(*path, error);
    if (error) return;  // opening the file will fail and say why
    if (std::mismatch(inside.begin(), inside.end(), file.begin(), file.end()).first != inside.end()) continue;
    throw UsageError(fmt::format("{} {} is in {} {}", flag, in_quotes(*path), whose, in_quotes(folder)),
                     "name a file elsewhere: it could replace one of that folder");
  }
}

void check_distinct_files(const std::vector<FileFlag>& outputs, const std::vector<FileFlag>& inputs) {
  auto others = standard_streams();
  for (auto& input : files_of(inputs)) others.push_back(std::move(input));
  for (auto& output : files_of(outputs)) {
    for (const auto& other : others) {
      if (!are_same(output, other)) continue;
      throw UsageError(fmt::format("{} and {} are the same file", other.name, output.name),
                       "name two different files: one would replace the other");
    }
    others.push_back(std::move(output));
  }
}

}  // namespace lockstep
