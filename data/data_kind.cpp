#include <lockstep/data/data_kind.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

#include <lockstep/data/fashion_mnist.h>
#include <lockstep/data/formats/cifar.h>
#include <lockstep/data/idx_files.h>
#include <lockstep/data/images/listed_folder.h>
#include <lockstep/data/not_idx.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLookedAt = 100'000;  // without an image among them
constexpr size_t kMostEntriesShown = 3;

constexpr const char* kKindsHint =
    "name a folder with four IDX files (train-images-idx3-ubyte, ...), CIFAR's .bin files, or train/CLASS/ "
    "and test/CLASS/ with PNG or JPEG images; or a file that ends with .safetensors";

// Returns whether there is an image in a folder of this folder, at any depth. Those of formats that are not
// read count: the loader names them.
bool holds_class_folders(const fs::path& folder) {
  std::error_code error;
  const auto options =
      fs::directory_options::skip_permission_denied | fs::directory_options::follow_directory_symlink;
  fs::recursive_directory_iterator entry(folder, options, error);
  for (int seen = 0; !error && entry != fs::end(entry) && seen < kMostLookedAt; ++seen) {
    const auto name = entry->path().filename().string();
    if (name.starts_with('.') || entry.depth() > 6) {
      entry.disable_recursion_pending();
    } else if (entry.depth() > 0 && (is_image_name(name) || is_other_image_name(name))) {
      return true;
    }
    entry.increment(error);
  }
  return false;
}

// "a.txt, b.txt, c.txt and 4 more"
std::string entries_of(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : list_folder(folder.string())) names.push_back(printable(entry.name));
  if (names.empty()) return "nothing";
  const auto more = static_cast<int64_t>(names.size()) - static_cast<int64_t>(kMostEntriesShown);
  if (names.size() > kMostEntriesShown) names.resize(kMostEntriesShown);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", with_commas(more)) : "");
}

[[noreturn]] void refuse_kind(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    const auto package = path == kDebianFashionMnist
                             ? "install Debian's package (apt-get install dataset-fashion-mnist), or "
                             : "";
    throw DataError(path.string() + " does not exist", package + std::string(kKindsHint));
  }
  if (status.type() == fs::file_type::none) {
    throw DataError(fmt::format("cannot read {}: {}", path.string(), error.message()),
                    "make the folder and its files readable (chmod), or name another folder");
  }
  if (status.type() != fs::file_type::directory) {
    const auto* const hint = other_file_hint(path);
    throw DataError(path.string() + " is a file, and its name does not end with .safetensors",
                    hint ? hint : kKindsHint);
  }
  const auto other = other_data(path);
  throw DataError(fmt::format("{} holds {}, and no data set: IDX files, CIFAR's .bin files and class folders "
                              "of PNG or JPEG images were looked for",
                              path.string(), other ? other->what : entries_of(path)),
                  other ? other->hint : kKindsHint);
}

}  // namespace

std::string_view to_string(DataKind kind) {
  switch (kind) {
    case DataKind::kIdx:
      return "IDX";
    case DataKind::kCifar10:
      return "CIFAR-10";
    case DataKind::kCifar100:
      return "CIFAR-100";
    case DataKind::kImageFolder:
      return "image folder";
    case DataKind::kTensorFile:
      return "safetensors";
  }
  return "";
}

DataKind kind_of(const fs::path& path) {
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  if (!folder && path.extension() == ".safetensors") return DataKind::kTensorFile;
  if (holds_idx_files(path)) return DataKind::kIdx;
  if (!folder) refuse_kind(path);
  if (holds_cifar10(path)) return DataKind::kCifar10;
  if (holds_cifar100(path)) return DataKind::kCifar100;
  if (holds_class_folders(path)) return DataKind::kImageFolder;
  refuse_kind(path);
}

}  // namespace lockstep
