// find_cifar_files() of cifar.h.
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <lockstep/data/formats/cifar.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCifarFilesHint =
    "unpack cifar-10-binary.tar.gz or cifar-100-binary.tar.gz, and name its folder";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The number of data_batch_NUMBER.bin.
std::optional<int64_t> batch_number(std::string_view name) {
  constexpr std::string_view kBegin = "data_batch_", kEnd = ".bin";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return std::nullopt;
  name.remove_prefix(kBegin.size());
  if (name.size() <= kEnd.size()) return std::nullopt;
  name.remove_suffix(kEnd.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

std::map<int64_t, fs::path> batches_in(const fs::path& folder) {
  std::map<int64_t, fs::path> batches;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto number = batch_number(entry->path().filename().native())) {
      batches[*number] = entry->path();
    }
  }
  if (error) {
    throw DataError(fmt::format("cannot read {}: {}", folder.string(), error.message()),
                    "make the folder and its files readable (chmod), or name another folder");
  }
  return batches;
}

bool is_cifar_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_cifar10(const fs::path& folder) {
  return is_cifar_folder(folder) && (is_there(folder / "test_batch.bin") || !batches_in(folder).empty());
}

// The folder's own name, also for "." and a slash at its end.
std::string own_name(const fs::path& folder) {
  std::error_code ignored;
  auto whole = fs::weakly_canonical(folder, ignored);
  if (!whole.has_filename()) whole = whole.parent_path();
  return whole.filename().string();
}

bool is_cifar100(const fs::path& folder) {
  if (!is_there(folder / "train.bin") && !is_there(folder / "test.bin")) return false;
  return is_there(folder / "fine_label_names.txt") || own_name(folder) == "cifar-100-binary";
}

// The folder itself, or the one in it that the archive unpacks to.
template <class Is>
std::optional<fs::path> folder_of(const fs::path& folder, const char* below, const Is& is) {
  if (is(folder)) return folder;
  if (is(folder / below)) return folder / below;
  return std::nullopt;
}

std::optional<fs::path> cifar10_in(const fs::path& folder) {
  return folder_of(folder, "cifar-10-batches-bin", is_cifar10);
}

std::optional<fs::path> cifar100_in(const fs::path& folder) {
  return folder_of(folder, "cifar-100-binary", is_cifar100);
}

fs::path cifar_file(const fs::path& folder, const char* name) {
  if (is_there(folder / name)) return folder / name;
  throw DataError(fmt::format("{} has no {}", folder.string(), name), kCifarFilesHint);
}

fs::path optional_cifar_file(const fs::path& folder, const char* name) {
  return is_there(folder / name) ? folder / name : fs::path();
}

CifarFiles files_of_cifar10(const fs::path& folder) {
  CifarFiles files{.names = optional_cifar_file(folder, "batches.meta.txt"), .label_bytes = 1, .classes = 10};
  int64_t expected = 1;
  for (const auto& [number, path] : batches_in(folder)) {
    if (number != expected) {
      throw DataError(
          fmt::format("{} has data_batch_{}.bin and no data_batch_{}.bin", folder.string(), number, expected),
          kCifarFilesHint);
    }
    files.train.push_back(path);
    ++expected;
  }
  if (files.train.empty()) (void)cifar_file(folder, "data_batch_1.bin");
  files.test = cifar_file(folder, "test_batch.bin");
  return files;
}

}  // namespace

bool holds_cifar10(const fs::path& folder) { return cifar10_in(folder).has_value(); }

bool holds_cifar100(const fs::path& folder) { return cifar100_in(folder).has_value(); }

CifarFiles find_cifar_files(const fs::path& folder) {
  const auto ten = cifar10_in(folder), hundred = cifar100_in(folder);
  if (ten && hundred) {
    throw DataError(fmt::format("{} holds several data sets: {} and {}", folder.string(), ten->string(),
                                hundred->string()),
                    "name one of them");
  }
  if (ten) return files_of_cifar10(*ten);
  if (!hundred) throw DataError(folder.string() + " holds none of CIFAR's .bin files", kCifarFilesHint);
  return {.train = {cifar_file(*hundred, "train.bin")},
          .test = cifar_file(*hundred, "test.bin"),
          .names = optional_cifar_file(*hundred, "fine_label_names.txt"),
          .label_bytes = 2,
          .classes = 100};
}

}  // namespace lockstep
