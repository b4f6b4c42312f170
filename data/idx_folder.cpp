#include <lockstep/data/idx_folder.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <lockstep/data/file_digest.h>
#include <lockstep/data/formats/class_names.h>
#include <lockstep/data/formats/image_idx.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// hash_of() the published sets. A test compares the files with their SHA-256.
constexpr std::string_view kFashionMnistTrain = "924ae43d1005aa0e97e6779495a8b4ba";
constexpr std::string_view kFashionMnistTest = "52d5cf267209b007440bcedb1e3e9174";

// Reads into the tensor's memory, without a second copy of the values.
torch::Tensor read_values(IdxReader& reader, at::IntArrayRef sizes) {
  torch::Tensor values = torch::empty(sizes, torch::kUInt8);
  reader.read({reinterpret_cast<std::byte*>(values.mutable_data_ptr<uint8_t>()), values.nbytes()});
  return values;
}

std::span<const uint8_t> labels_of(const ImageSet& set) {
  return {set.labels.const_data_ptr<uint8_t>(), static_cast<size_t>(set.labels.numel())};
}

ImageSet load_set(const fs::path& image_path, const fs::path& label_path) {
  IdxReader images = open_images(image_path);
  IdxReader labels = open_labels(label_path);
  if (images.rows() != labels.rows()) {  // from the headers, before the images are read
    throw DataError(fmt::format("{} has {} images, {} has {} labels", image_path.string(), images.rows(),
                                label_path.string(), labels.rows()),
                    damaged_hint(image_path));
  }
  auto sizes = image_shape(images);
  sizes.insert(sizes.begin(), images.rows());
  return {read_values(images, sizes), read_values(labels, {labels.rows()})};
}

void check_shapes(const Dataset& data, const IdxFiles& files) {
  if (data.train.shape() == data.test.shape()) return;
  throw DataError(
      fmt::format("{} has images of {}, {} of {} (channels, height, width)", files.train_images.string(),
                  to_string(data.train.shape()), files.test_images.string(), to_string(data.test.shape())),
      "train and test have images of one shape");
}

// "mnist" for data/mnist, data/mnist/raw and "." there.
std::string name_of(const fs::path& folder) {
  std::error_code ignored;
  auto whole = fs::weakly_canonical(folder, ignored);
  if (whole.empty()) whole = folder;
  if (whole.filename() == "raw" && whole.parent_path().has_filename()) whole = whole.parent_path();
  return whole.has_filename() ? whole.filename().string() : whole.string();
}

bool is_published(const Dataset& data) {
  constexpr int64_t kTrainRows = 60'000, kTestRows = 10'000;
  return data.train.size() == kTrainRows && data.test.size() == kTestRows &&
         data.train.shape() == ImageShape() && hash_of(data.train) == kFashionMnistTrain &&
         hash_of(data.test) == kFashionMnistTest;
}

// The classes up to the largest label.
std::vector<std::string> classes_by_number(const Dataset& data) {
  const auto most = std::max(std::ranges::max(labels_of(data.train)), std::ranges::max(labels_of(data.test)));
  return numbered_classes(int64_t{most} + 1);
}

std::vector<std::string> class_names_of(const Dataset& data, const IdxFiles& files, bool published) {
  const auto folder = files.train_images.parent_path();
  const auto named = folder / ((files.prefix.empty() ? "" : files.prefix + "-") + std::string("classes.txt"));
  std::error_code ignored;
  if (fs::exists(named, ignored)) return read_class_names(named);
  if (published) return fashion_mnist_classes();
  auto names = emnist_classes(files.prefix);
  return names.empty() ? classes_by_number(data) : names;
}

}  // namespace

Dataset load_idx_folder(const fs::path& folder) {
  const auto files = find_idx_files(folder);
  Dataset data{.name = {},
               .train = load_set(files.train_images, files.train_labels),
               .test = load_set(files.test_images, files.test_labels)};
  check_shapes(data, files);
  const bool published = is_published(data);
  if (published) {
    data.name = "Fashion-MNIST";
  } else {
    data.name = files.prefix.empty() ? name_of(files.train_images.parent_path()) : files.prefix;
  }
  data.class_names = class_names_of(data, files, published);
  data.classes = static_cast<int64_t>(data.class_names.size());
  check_labels(labels_of(data.train), data.classes, files.train_labels);
  check_labels(labels_of(data.test), data.classes, files.test_labels);
  data.kind = "IDX";
  data.digest = digest_of_files(
      std::array{files.train_images, files.train_labels, files.test_images, files.test_labels});
  data.notices = label_notices(labels_of(data.train), labels_of(data.test), data.class_names);
  return data;
}

}  // namespace lockstep
