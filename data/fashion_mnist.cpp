#include <lockstep/data/fashion_mnist.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <system_error>

#include <lockstep/data/formats/idx.h>
#include <lockstep/data/sha256.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// No data set of this form has more rows; an image file of this many takes 784 MB.
constexpr int64_t kMaxRows = 1'000'000;

struct PublishedFile {
  std::string_view name;  // Debian's and the original download add .gz
  bool images;
  std::string_view sha256;  // of the decompressed bytes
};
constexpr PublishedFile kTrainImages = {"train-images-idx3-ubyte", true,
                                        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"};
constexpr PublishedFile kTrainLabels = {"train-labels-idx1-ubyte", false,
                                        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"};
constexpr PublishedFile kTestImages = {"t10k-images-idx3-ubyte", true,
                                       "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"};
constexpr PublishedFile kTestLabels = {"t10k-labels-idx1-ubyte", false,
                                       "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"};

constexpr std::string_view kMissingHint =
    "install Debian's package (apt-get install dataset-fashion-mnist), or name the folder that holds the "
    "files";
constexpr std::string_view kUnreadableHint =
    "make the folder and its files readable (chmod), or name another folder";
constexpr std::string_view kDamagedHint =
    "put the published file in its place (apt-get install --reinstall dataset-fashion-mnist)";

// Whether there is something at this path. Throws DataError where the system does not tell, for example
// because the folder above may not be read.
bool path_exists(const std::filesystem::path& path) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::none) {
    throw DataError(fmt::format("cannot read {}: {}", path.string(), error.message()),
                    std::string(kUnreadableHint));
  }
  return type != std::filesystem::file_type::not_found;
}

// Returns the plain file if it exists, because it loads faster, else the gzipped one.
std::filesystem::path find_file(const std::filesystem::path& folder, const PublishedFile& file) {
  std::error_code ignored;
  if (!path_exists(folder) || !std::filesystem::is_directory(folder, ignored)) {
    throw DataError(fmt::format("data folder {} does not exist or is not a folder", folder.string()),
                    std::string(kMissingHint));
  }
  for (const char* ending : {"", ".gz"}) {
    const auto path = folder / (std::string(file.name) + ending);
    if (path_exists(path)) return path;
  }
  throw DataError(fmt::format("{} has neither {} nor {}.gz", folder.string(), file.name, file.name),
                  std::string(kMissingHint));
}

IdxReader open_file(const std::filesystem::path& path, const PublishedFile& file) {
  const IdxShape shape = {file.images ? std::vector<int64_t>{kImageSide, kImageSide} : std::vector<int64_t>{},
                          kMaxRows};
  return IdxReader(path, shape, std::string(kDamagedHint));
}

// Reads into the tensor's memory, without a second copy of the values.
torch::Tensor read_values(IdxReader& reader, at::IntArrayRef sizes) {
  torch::Tensor values = torch::empty(sizes, torch::kUInt8);
  reader.read({reinterpret_cast<std::byte*>(values.mutable_data_ptr<uint8_t>()), values.nbytes()});
  return values;
}

void check_labels(const torch::Tensor& labels, const std::filesystem::path& path) {
  const std::span values(labels.const_data_ptr<uint8_t>(), labels.nbytes());
  const auto wrong =
      std::find_if(values.begin(), values.end(), [](uint8_t label) { return label >= kImageClasses; });
  if (wrong == values.end()) return;
  throw DataError(fmt::format("{} has label {} in row {}, labels are 0 to {}", path.string(), *wrong,
                              wrong - values.begin(), kImageClasses - 1),
                  std::string(kDamagedHint));
}

ImageSet load_set(const std::filesystem::path& folder, const PublishedFile& image_file,
                  const PublishedFile& label_file) {
  const auto image_path = find_file(folder, image_file);
  const auto label_path = find_file(folder, label_file);
  IdxReader images = open_file(image_path, image_file);
  IdxReader labels = open_file(label_path, label_file);
  if (images.rows() != labels.rows()) {  // from the headers, before the images are read
    throw DataError(fmt::format("{} has {} images, {} has {} labels", image_path.string(), images.rows(),
                                label_path.string(), labels.rows()),
                    std::string(kDamagedHint));
  }
  ImageSet set = {read_values(images, {images.rows(), 1, kImageSide, kImageSide}),
                  read_values(labels, {labels.rows()})};
  check_labels(set.labels, label_path);
  return set;
}

std::string hash_of(const std::filesystem::path& path, const PublishedFile& file) {
  IdxReader reader = open_file(path, file);
  Sha256 hash;
  hash.update(reader.header());
  std::vector<std::byte> buffer(1 << 18);
  while (reader.bytes_left() > 0) {
    const auto part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), reader.bytes_left()));
    reader.read(part);
    hash.update(part);
  }
  return hash.hex();
}

}  // namespace

Dataset load_fashion_mnist(const std::filesystem::path& folder) {
  return {"Fashion-MNIST", load_set(folder, kTrainImages, kTrainLabels),
          load_set(folder, kTestImages, kTestLabels), kImageClasses};
}

std::vector<FileCheck> verify_fashion_mnist(const std::filesystem::path& folder) {
  std::vector<FileCheck> checks;
  for (const PublishedFile& file : {kTrainImages, kTrainLabels, kTestImages, kTestLabels}) {
    const auto path = find_file(folder, file);
    checks.push_back({path, hash_of(path, file), std::string(file.sha256)});
  }
  return checks;
}

}  // namespace lockstep
