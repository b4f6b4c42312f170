#include <lockstep/data/images/listed_folder.h>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <span>

#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>
#include <lockstep/support/files/file_time.h>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 3> kImageEndings = {".png", ".jpg", ".jpeg"};
constexpr std::array<std::string_view, 11> kOtherImageEndings = {
    ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pnm", ".heic", ".avif", ".jp2"};

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

[[noreturn]] void refuse_folder(const std::string& path, int error) {
  throw DataError(fmt::format("cannot read folder {}: {}", path, errno_text(error)),
                  "make the folder and its files readable (chmod), or name another folder");
}

bool has_ending(std::span<const std::string_view> endings, std::string_view name) {
  const auto dot = name.rfind('.');
  return dot != std::string_view::npos &&
         std::ranges::find(endings, in_small_letters(name.substr(dot))) != endings.end();
}

FolderEntry entry_of(int folder, const dirent& found) {
  FolderEntry entry{.name = found.d_name};
  if (found.d_type == DT_DIR) {
    entry.kind = EntryKind::kFolder;
    return entry;
  }
  struct stat status = {};
  if (::fstatat(folder, found.d_name, &status, 0) != 0) {
    entry.kind = EntryKind::kUnreadable;
    entry.error = errno;
    return entry;
  }
  if (S_ISDIR(status.st_mode)) {
    entry.kind = EntryKind::kFolder;
  } else if (!S_ISREG(status.st_mode)) {
    entry.kind = EntryKind::kOther;
  }
  entry.size = status.st_size;
  entry.written = nanoseconds(status.st_mtim);
  entry.file[0] = status.st_dev;
  entry.file[1] = status.st_ino;
  return entry;
}

}  // namespace

std::vector<FolderEntry> list_folder(const std::string& path) {
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir(path.c_str()));
  if (!folder) refuse_folder(path, errno);
  std::vector<FolderEntry> entries;
  while (true) {
    errno = 0;
    const dirent* found = ::readdir(folder.get());
    if (!found && errno != 0) refuse_folder(path, errno);
    if (!found) break;
    if (found->d_name[0] != '.') entries.push_back(entry_of(::dirfd(folder.get()), *found));
  }
  std::ranges::sort(entries, {}, &FolderEntry::name);
  return entries;
}

bool is_image_name(std::string_view name) { return has_ending(kImageEndings, name); }

bool is_other_image_name(std::string_view name) { return has_ending(kOtherImageEndings, name); }

std::string in_small_letters(std::string_view name) {
  std::string small(name);
  for (char& c : small) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return small;
}

}  // namespace lockstep
