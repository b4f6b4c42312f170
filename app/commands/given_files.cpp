#include <lockstep/app/commands/given_files.h>

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include <lockstep/data/images/listed_folder.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDeepest = 16;

using FolderId = std::array<uint64_t, 2>;  // its device and number

// Returns zeros for a folder that cannot be asked, which list_folder() refuses.
FolderId id_of(const std::string& folder) {
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 ? FolderId{status.st_dev, status.st_ino} : FolderId{};
}

void add_entry(const std::string& path, const FolderEntry& entry, GivenFiles& found) {
  const auto refuse = [&](const std::string& why) { found.unreadable.push_back({path, path + " " + why}); };
  if (is_other_image_name(entry.name)) {
    return refuse("is an image of a format that is not read, PNG and JPEG are");
  }
  if (!is_image_name(entry.name)) {
    ++found.others;
  } else if (entry.kind == EntryKind::kUnreadable) {
    refuse("cannot be read: " + errno_text(entry.error));
  } else if (entry.kind == EntryKind::kOther) {
    refuse("is not a regular file");
  } else {
    found.files.push_back(path);
  }
}

// above: the folders that this one lies in.
void add_folder(const std::string& folder, std::vector<FolderId> above, GivenFiles& found) {
  if (above.size() > kDeepest) {
    throw DataError(fmt::format("{} is more than {} folders deep", in_quotes(folder), kDeepest),
                    "name folders below it");
  }
  std::vector<FolderEntry> entries;
  try {
    entries = list_folder(folder);
  } catch (const DataError& error) {
    if (above.empty()) throw;
    found.unreadable.push_back({folder, error.message()});
    return;
  }
  above.push_back(id_of(folder));
  for (const auto& entry : entries) {
    const auto path = (fs::path(folder) / entry.name).string();
    if (entry.kind != EntryKind::kFolder) {
      add_entry(path, entry, found);
    } else if (std::ranges::find(above, FolderId{entry.file[0], entry.file[1]}) != above.end()) {
      found.circles.push_back(path);
    } else {
      add_folder(path, above, found);
    }
  }
}

}  // namespace

GivenFiles files_of(const std::vector<std::string>& words) {
  GivenFiles found;
  for (const auto& word : words) {
    std::error_code ignored;
    if (!fs::is_directory(word, ignored)) {
      found.files.push_back(word);
      continue;
    }
    const auto before = found.files.size() + found.unreadable.size();
    add_folder(word, {}, found);
    if (found.files.size() + found.unreadable.size() > before) continue;
    throw DataError(fmt::format("{} holds no images", in_quotes(word)),
                    "their names end with .png, .jpg or .jpeg, and begin without a dot");
  }
  return found;
}

}  // namespace lockstep
