#include <lockstep/data/idx_files.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/data/fashion_mnist.h>
#include <lockstep/data/idx_names.h>
#include <lockstep/data/not_idx.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The files of one folder, and the prefix that was asked for.
struct Place {
  fs::path folder;
  IdxNames names;
  std::string prefix = {};
};

std::string missing_hint(const fs::path& folder) {
  if (folder != kDebianFashionMnist) return "name the folder that holds the four IDX files of a data set";
  return "install Debian's package (apt-get install dataset-fashion-mnist), or name the folder that holds "
         "the files";
}

// Returns whether there is something at this path. Throws DataError where the system does not tell, for
// example because the folder above may not be read.
bool path_exists(const fs::path& path) {
  std::error_code error;
  const auto type = fs::status(path, error).type();
  if (type == fs::file_type::none) {
    throw DataError(fmt::format("cannot read {}: {}", path.string(), error.message()),
                    "make the folder and its files readable (chmod), or name another folder");
  }
  return type != fs::file_type::not_found;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Where the files are: in the folder, or as torchvision keeps them, in raw/ of a data set's folder and in
// NAME/raw/ of the folder above. In order.
std::vector<Place> places_of(const fs::path& folder) {
  std::vector<Place> found;
  const auto add = [&](const fs::path& path) {
    if (auto names = idx_names_in(path); !names.empty()) {
      found.push_back({.folder = path, .names = std::move(names)});
    }
  };
  add(folder);
  if (!found.empty()) return found;
  std::vector<fs::path> candidates = {folder / "raw"};
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) candidates.push_back(entry->path() / "raw");
  }
  std::ranges::sort(candidates);
  for (const auto& raw : candidates) {
    if (is_folder(raw)) add(raw);
  }
  return found;
}

// The folder above, and the prefix that the last part of the path then is.
std::pair<fs::path, std::string> above(const fs::path& path) {
  auto folder = path.parent_path();
  return {folder.empty() ? fs::path(".") : folder, path.filename().string()};
}

// As places_of(); for FOLDER/PREFIX, the place that has files of this prefix.
std::vector<Place> named_places(const fs::path& path) {
  if (is_folder(path)) return places_of(path);
  const auto [folder, prefix] = above(path);
  if (prefix.empty() || path_exists(path) || !is_folder(folder)) return {};
  std::vector<Place> found;
  for (auto& place : places_of(folder)) {
    if (!place.names.contains(prefix)) continue;
    place.prefix = prefix;
    found.push_back(std::move(place));
  }
  return found;
}

[[noreturn]] void refuse_without_files(const fs::path& folder) {
  if (!path_exists(folder) || !is_folder(folder)) {
    throw DataError(fmt::format("data folder {} does not exist or is not a folder", folder.string()),
                    missing_hint(folder));
  }
  if (const auto other = other_data(folder)) {
    throw DataError(fmt::format("{} holds {}, and none of the four IDX files", folder.string(), other->what),
                    other->hint);
  }
  throw DataError(
      fmt::format("{} holds no {} and none of the other IDX files", folder.string(), kIdxNames[0]),
      missing_hint(folder));
}

// The place of the files, with the prefix of the one data set in it.
Place place_of(const fs::path& folder) {
  auto places = named_places(folder);
  if (places.empty()) refuse_without_files(folder);
  if (places.size() > 1) {
    throw DataError(fmt::format("{} holds several data sets: {} and {}", folder.string(),
                                places[0].folder.string(), places[1].folder.string()),
                    "name one of them");
  }
  auto place = std::move(places.front());
  if (!place.prefix.empty() || place.names.contains("")) return place;
  if (place.names.size() > 1) {
    std::vector<std::string> prefixes;
    for (const auto& [prefix, names] : place.names) prefixes.push_back(prefix);
    throw DataError(
        fmt::format("{} holds several data sets: {}", place.folder.string(), fmt::join(prefixes, ", ")),
        "name one of them, such as " + (place.folder / prefixes.front()).string());
  }
  place.prefix = place.names.begin()->first;
  return place;
}

}  // namespace

IdxFiles find_idx_files(const fs::path& folder) {
  const auto place = place_of(folder);
  const auto& names = place.names.at(place.prefix);
  const auto before = place.prefix.empty() ? "" : place.prefix + "-";
  std::vector<fs::path> paths;
  for (size_t i = 0; i < names.size(); ++i) {
    paths.push_back(place.folder / names[i]);
    if (!names[i].empty() && path_exists(paths.back())) continue;
    const auto name = before + std::string(kIdxNames[i]);
    throw DataError(fmt::format("{} has neither {} nor {}.gz", place.folder.string(), name, name),
                    fmt::format("a data set is four files: {}{}", before,
                                fmt::join(kIdxNames, fmt::format(", {}", before))));
  }
  return {paths[0], paths[1], paths[2], paths[3], place.prefix};
}

bool holds_idx_files(const fs::path& folder) { return !named_places(folder).empty(); }

}  // namespace lockstep
