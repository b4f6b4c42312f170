#include <lockstep/data/images/folder_layout.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include <lockstep/data/images/listed_folder.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using FolderNames = std::vector<std::string>;

FolderNames folders_in(const std::vector<FolderEntry>& entries) {
  FolderNames names;
  for (const auto& entry : entries) {
    if (entry.kind == EntryKind::kFolder) names.push_back(entry.name);
  }
  return names;
}

// Returns the folder with one of these names; empty: there is none. Throws DataError for two.
std::string the_one(const std::string& folder, const FolderNames& folders,
                    std::initializer_list<std::string_view> names) {
  std::string found;
  for (const auto& name : folders) {
    if (std::ranges::find(names, in_small_letters(name)) == names.end()) continue;
    if (!found.empty()) {
      throw DataError(fmt::format("{} holds {} and {}, one of them was expected", folder, found, name),
                      "merge the two, or move one elsewhere");
    }
    found = name;
  }
  return found;
}

[[noreturn]] void refuse_without_folders(const std::string& folder, const std::vector<FolderEntry>& entries) {
  const auto image = std::ranges::find_if(entries, [](const auto& entry) {
    return is_image_name(entry.name) || is_other_image_name(entry.name);
  });
  throw DataError(image == entries.end()
                      ? fmt::format("{} holds no class folders", folder)
                      : fmt::format("{} holds images such as {}, and no class folders", folder, image->name),
                  "put each image into a folder with the name of its class: CLASS/IMAGE.png");
}

// ImageNet's test/ holds images of unknown classes, and val/ those to test with.
bool holds_folders(const std::string& folder) { return !folders_in(list_folder(folder)).empty(); }

LeftOut images_in(const std::string& folder, const std::vector<FolderEntry>& entries) {
  LeftOut images;
  for (const auto& entry : entries) {
    if (entry.kind == EntryKind::kFolder) continue;
    if (is_image_name(entry.name) || is_other_image_name(entry.name)) images.add(folder + "/" + entry.name);
  }
  return images;
}

FolderLayout halves(const std::string& folder, const FolderNames& folders, const std::string& train,
                    const std::string& test, const std::string& validation) {
  FolderLayout layout{.train = folder + "/" + train};
  auto chosen = test.empty() ? validation : test;
  if (!test.empty() && !validation.empty() && !holds_folders(folder + "/" + test)) chosen = validation;
  layout.test = folder + "/" + chosen;
  FolderNames rest;
  for (const auto& name : folders) {
    if (name != train && name != chosen) rest.push_back(name);
  }
  if (!rest.empty()) {
    layout.notices.push_back(
        fmt::format("of {}, {} and {} are read, and not {}", folder, train, chosen, fmt::join(rest, ", ")));
  }
  return layout;
}

}  // namespace

FolderLayout layout_of(const std::string& folder) {
  const auto entries = list_folder(folder);
  const auto folders = folders_in(entries);
  if (folders.empty()) refuse_without_folders(folder, entries);
  const auto is_half = [&](auto names) { return the_one(folder, folders, names); };
  const std::initializer_list<std::string_view> train_names = {"train", "training"};
  const std::initializer_list<std::string_view> test_names = {"test", "testing"};
  const std::initializer_list<std::string_view> validation_names = {"val", "valid", "validation"};
  const auto train = is_half(train_names);
  const auto test = is_half(test_names), validation = is_half(validation_names);
  if (train.empty()) return {.train = folder};
  auto layout = FolderLayout{.train = folder};  // of classes, one of which may be called train
  if (!test.empty() || !validation.empty()) {
    layout = halves(folder, folders, train, test, validation);
  } else if (folders.size() == 1) {
    layout.train = folder + "/" + train;
  }
  if (layout.train != folder) layout.outside = images_in(folder, entries);
  return layout;
}

}  // namespace lockstep
