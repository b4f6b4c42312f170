#include <lockstep/data/idx_folder.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <lockstep/data/fashion_mnist.h>
#include <lockstep/data/formats/image_idx.h>
#include <lockstep/data/not_idx.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/xxhash64.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Before and behind the dash or dot in its name.
struct FileName {
  std::string_view what, form;
};
constexpr std::array<FileName, 4> kFileNames = {{{"train-images", "idx3-ubyte"},
                                                 {"train-labels", "idx1-ubyte"},
                                                 {"t10k-images", "idx3-ubyte"},
                                                 {"t10k-labels", "idx1-ubyte"}}};

// hash_of() the published sets. A test compares the files with their SHA-256.
constexpr std::string_view kFashionMnistTrain = "924ae43d1005aa0e97e6779495a8b4ba";
constexpr std::string_view kFashionMnistTest = "52d5cf267209b007440bcedb1e3e9174";

constexpr std::string_view kUnreadableHint =
    "make the folder and its files readable (chmod), or name another folder";

std::string missing_hint(const fs::path& folder) {
  if (folder != kDebianFashionMnist) return "name the folder that holds the four IDX files of a data set";
  return "install Debian's package (apt-get install dataset-fashion-mnist), or name the folder that holds "
         "the files";
}

std::string usual_name(const FileName& file) { return fmt::format("{}-{}", file.what, file.form); }

// Returns whether there is something at this path. Throws DataError where the system does not tell, for
// example because the folder above may not be read.
bool path_exists(const fs::path& path) {
  std::error_code error;
  const auto type = fs::status(path, error).type();
  if (type == fs::file_type::none) {
    throw DataError(fmt::format("cannot read {}: {}", path.string(), error.message()),
                    std::string(kUnreadableHint));
  }
  return type != fs::file_type::not_found;
}

// A plain file is preferred, because it loads faster.
std::optional<fs::path> find_file(const fs::path& folder, const FileName& file) {
  for (const char* ending : {"", ".gz"}) {
    for (const char joint : {'-', '.'}) {
      auto path = folder / fmt::format("{}{}{}{}", file.what, joint, file.form, ending);
      if (path_exists(path)) return path;
    }
  }
  return std::nullopt;
}

bool holds_any(const fs::path& folder) {
  return std::ranges::any_of(kFileNames,
                             [&](const auto& file) { return find_file(folder, file).has_value(); });
}

// Where torchvision keeps files: raw/ of a data set's folder, NAME/raw/ of the folder above. In order.
std::vector<fs::path> raw_folders(const fs::path& folder) {
  std::vector<fs::path> candidates = {folder / "raw"}, found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    candidates.push_back(entry->path() / "raw");
  }
  std::error_code ignored;
  for (const auto& raw : candidates) {
    if (fs::is_directory(raw, ignored) && holds_any(raw)) found.push_back(raw);
  }
  std::ranges::sort(found);
  return found;
}

// The folder of the files, which may be below the named one.
fs::path folder_of_files(const fs::path& folder) {
  std::error_code ignored;
  if (!path_exists(folder) || !fs::is_directory(folder, ignored)) {
    throw DataError(fmt::format("data folder {} does not exist or is not a folder", folder.string()),
                    missing_hint(folder));
  }
  if (holds_any(folder)) return folder;
  const auto raw = raw_folders(folder);
  if (raw.size() == 1) return raw.front();
  if (raw.size() > 1) {
    throw DataError(fmt::format("{} holds several data sets: {} and {}", folder.string(), raw[0].string(),
                                raw[1].string()),
                    "name one of them");
  }
  if (const auto other = other_data(folder)) {
    throw DataError(fmt::format("{} holds {}", folder.string(), other->what), other->hint);
  }
  throw DataError(fmt::format("{} holds no {} and none of the other IDX files", folder.string(),
                              usual_name(kFileNames[0])),
                  missing_hint(folder));
}

fs::path file_in(const fs::path& folder, const FileName& file) {
  if (auto path = find_file(folder, file)) return *path;
  const auto name = usual_name(file);
  std::vector<std::string> names;
  for (const auto& each : kFileNames) names.push_back(usual_name(each));
  throw DataError(fmt::format("{} has neither {} nor {}.gz", folder.string(), name, name),
                  fmt::format("a data set is four files: {}", fmt::join(names, ", ")));
}

// Reads into the tensor's memory, without a second copy of the values.
torch::Tensor read_values(IdxReader& reader, at::IntArrayRef sizes) {
  torch::Tensor values = torch::empty(sizes, torch::kUInt8);
  reader.read({reinterpret_cast<std::byte*>(values.mutable_data_ptr<uint8_t>()), values.nbytes()});
  return values;
}

void check_labels(const torch::Tensor& labels, const fs::path& path) {
  const std::span values(labels.const_data_ptr<uint8_t>(), labels.nbytes());
  const auto wrong =
      std::find_if(values.begin(), values.end(), [](uint8_t label) { return label >= kImageClasses; });
  if (wrong == values.end()) return;
  throw DataError(fmt::format("{} has label {} in row {}, labels are 0 to {}", path.string(), *wrong,
                              wrong - values.begin(), kImageClasses - 1),
                  std::string(kUnfitHint));
}

ImageSet load_set(const fs::path& image_path, const fs::path& label_path) {
  IdxReader images = open_images(image_path);
  IdxReader labels = open_labels(label_path);
  if (images.rows() != labels.rows()) {  // from the headers, before the images are read
    throw DataError(fmt::format("{} has {} images, {} has {} labels", image_path.string(), images.rows(),
                                label_path.string(), labels.rows()),
                    damaged_hint(image_path));
  }
  ImageSet set = {read_values(images, {images.rows(), 1, kImageSide, kImageSide}),
                  read_values(labels, {labels.rows()})};
  check_labels(set.labels, label_path);
  return set;
}

// "mnist" for data/mnist, data/mnist/raw and "." there.
std::string name_of(const fs::path& folder) {
  std::error_code ignored;
  auto whole = fs::weakly_canonical(folder, ignored);
  if (whole.empty()) whole = folder;
  if (whole.filename() == "raw" && whole.parent_path().has_filename()) whole = whole.parent_path();
  return whole.has_filename() ? whole.filename().string() : whole.string();
}

}  // namespace

IdxFiles find_idx_files(const fs::path& folder) {
  const auto files = folder_of_files(folder);
  return {file_in(files, kFileNames[0]), file_in(files, kFileNames[1]), file_in(files, kFileNames[2]),
          file_in(files, kFileNames[3])};
}

Dataset load_idx_folder(const fs::path& folder) {
  const auto files = find_idx_files(folder);
  Dataset data{.name = {},
               .train = load_set(files.train_images, files.train_labels),
               .test = load_set(files.test_images, files.test_labels),
               .classes = kImageClasses};
  const bool published = hash_of(data.train) == kFashionMnistTrain && hash_of(data.test) == kFashionMnistTest;
  data.name = published ? "Fashion-MNIST" : name_of(files.train_images.parent_path());
  return data;
}

}  // namespace lockstep
