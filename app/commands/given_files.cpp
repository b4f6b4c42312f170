#include <lockstep/app/commands/given_files.h>

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include <lockstep/data/images/listed_folder.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 16;  // a symbolic link may lead in a circle

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

void add_folder(const std::string& folder, int depth, GivenFiles& found) {
  if (depth > kDeepest) {
    throw DataError(fmt::format("{} is more than {} folders deep", in_quotes(folder), kDeepest),
                    "see whether a symbolic link leads in a circle, or name folders below it");
  }
  std::vector<FolderEntry> entries;
  try {
    entries = list_folder(folder);
  } catch (const DataError& error) {
    if (depth == 0) throw;
    found.unreadable.push_back({folder, error.message()});
    return;
  }
  for (const auto& entry : entries) {
    const auto path = (fs::path(folder) / entry.name).string();
    if (entry.kind == EntryKind::kFolder) {
      add_folder(path, depth + 1, found);
    } else {
      add_entry(path, entry, found);
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
    add_folder(word, 0, found);
    if (found.files.size() + found.unreadable.size() > before) continue;
    throw DataError(fmt::format("{} holds no images", in_quotes(word)),
                    "their names end with .png, .jpg or .jpeg, and begin without a dot");
  }
  return found;
}

}  // namespace lockstep
