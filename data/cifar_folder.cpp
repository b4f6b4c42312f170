#include <lockstep/data/cifar_folder.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/file_digest.h>
#include <lockstep/data/formats/cifar.h>
#include <lockstep/data/formats/class_names.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::span<const uint8_t> cifar_labels(const ImageSet& set) {
  return {set.labels.const_data_ptr<uint8_t>(), static_cast<size_t>(set.labels.numel())};
}

// Reads the files one behind the other.
ImageSet load_cifar_set(const std::vector<fs::path>& files, int label_bytes, int64_t classes) {
  std::vector<int64_t> rows;
  for (const auto& file : files) rows.push_back(cifar_rows(file, label_bytes));
  const auto all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  ImageSet set = {torch::empty({all, kCifarChannels, kCifarSide, kCifarSide}, torch::kUInt8),
                  torch::empty({all}, torch::kUInt8)};
  std::span images(set.images.mutable_data_ptr<uint8_t>(), static_cast<size_t>(all * kCifarPixels));
  std::span labels(set.labels.mutable_data_ptr<uint8_t>(), static_cast<size_t>(all));
  for (size_t i = 0; i < files.size(); ++i) {
    const auto count = static_cast<size_t>(rows[i]);
    read_cifar(files[i], label_bytes, images.first(count * kCifarPixels), labels.first(count));
    check_labels(labels.first(count), classes, files[i]);
    images = images.subspan(count * kCifarPixels);
    labels = labels.subspan(count);
  }
  return set;
}

}  // namespace

Dataset load_cifar(const fs::path& folder) {
  const auto files = find_cifar_files(folder);
  const bool named = !files.names.empty();
  auto names = named ? read_class_names(files.names) : numbered_classes(files.classes);
  const auto classes = static_cast<int64_t>(names.size());
  const std::string kind = files.label_bytes == 1 ? "CIFAR-10" : "CIFAR-100";
  Dataset data{.name = kind,
               .train = load_cifar_set(files.train, files.label_bytes, classes),
               .test = load_cifar_set({files.test}, files.label_bytes, classes),
               .classes = classes,
               .class_names = std::move(names),
               .kind = kind};
  auto all = files.train;
  all.push_back(files.test);
  if (named) all.push_back(files.names);
  data.digest = digest_of_files(all);
  data.notices = label_notices(cifar_labels(data.train), cifar_labels(data.test), data.class_names);
  if (!named) {
    data.notices.push_back(fmt::format("{} has no {}: classes are numbers", files.test.parent_path().string(),
                                       files.label_bytes == 1 ? "batches.meta.txt" : "fine_label_names.txt"));
  }
  return data;
}

}  // namespace lockstep
