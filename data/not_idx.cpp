#include <lockstep/data/not_idx.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <string_view>
#include <system_error>

#include <lockstep/data/images/listed_folder.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kMostEntries = 1000;  // a folder of images may have millions
constexpr int kDeepest = 2;         // set/class/image

constexpr const char* kOtherHint =
    "save the rows as safetensors, train.NAME and test.NAME, or images as PNG files in class folders; of an "
    "archive, name the folder that it unpacks to";

constexpr const char* kImagesHint =
    "class folders, train/CLASS/IMAGE.png and test/CLASS/IMAGE.png, are a data set of their own kind: name "
    "the "
    "folder that holds them, and save other formats as PNG or JPEG";

constexpr const char* kCifarHint =
    "the binary form of CIFAR is read: unpack cifar-10-binary.tar.gz or cifar-100-binary.tar.gz, and name "
    "its "
    "folder";

constexpr const char* kNamesHint =
    "rename them to train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte, or put links with these names beside them; each may end in .gz";

constexpr const char* kRowsHint =
    "save the rows as safetensors, in Python: save_file({'train.X': X, 'train.y': y, 'test.X': X_test, "
    "'test.y': y_test}, 'mine.safetensors')";
constexpr const char* kArchiveHint = "unpack it, and name the folder";

constexpr std::array<std::string_view, 13> kTables = {".npz",   ".npy",  ".csv",  ".tsv", ".parquet",
                                                      ".arrow", ".h5",   ".hdf5", ".pt",  ".pth",
                                                      ".pkl",   ".json", ".mat"};
constexpr std::array<std::string_view, 9> kArchives = {".zip", ".tar", ".tgz", ".gz", ".bz2",
                                                       ".xz",  ".zst", ".7z",  ".rar"};

bool ends_in_one_of(std::span<const std::string_view> endings, const fs::path& path) {
  auto ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(endings, ending) != endings.end();
}

// The files of CIFAR-10, as an archive, and unpacked for Python or as binaries; of CIFAR-100.
bool is_of_cifar(const fs::path& path) {
  const auto name = path.filename().string();
  return name.starts_with("cifar-") || name.starts_with("data_batch_") || name == "fine_label_names.txt";
}

bool is_idx(const fs::path& path) {
  const auto name = path.filename().string();
  return name.find("idx1-ubyte") != std::string::npos || name.find("idx3-ubyte") != std::string::npos;
}

}  // namespace

const char* other_file_hint(const fs::path& file) {
  if (is_idx(file)) return "name its folder";
  if (ends_in_one_of(kTables, file)) return kRowsHint;
  return ends_in_one_of(kArchives, file) ? kArchiveHint : nullptr;
}

std::optional<OtherData> other_data(const fs::path& folder) {
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
  for (int seen = 0; !error && entry != fs::end(entry) && seen < kMostEntries; ++seen) {
    const auto name = fs::path(entry->path()).lexically_relative(folder).string();
    if (is_of_cifar(entry->path())) return OtherData{"CIFAR's " + name, kCifarHint};
    if (is_image_name(name) || is_other_image_name(name)) {
      return OtherData{"images such as " + name, kImagesHint};
    }
    if (is_idx(entry->path())) {
      return OtherData{name + ", which is none of the names of the four IDX files", kNamesHint};
    }
    if (other_file_hint(entry->path())) return OtherData{name, kOtherHint};
    if (entry.depth() >= kDeepest) entry.disable_recursion_pending();
    entry.increment(error);
  }
  return std::nullopt;
}

}  // namespace lockstep
