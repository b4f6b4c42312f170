#include <lockstep/data/images/decoded_rows.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <lockstep/data/dataset_rows.h>
#include <lockstep/data/images/for_each_row.h>
#include <lockstep/data/resident_rows.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/xxhash64.h>

namespace lockstep {
namespace {

// The images of a data set, which have the size of the first one.
struct SameSize {
  ImageList files;
  detail::ImageDecoder decode;
  Pixels first;

  int64_t bytes() const { return int64_t{first.channels} * first.height * first.width; }
  std::vector<int64_t> shape() const { return {first.channels, first.height, first.width}; }

  void decode_into(int64_t row, uint8_t* bytes_of_row) const {
    const auto file = files.at(static_cast<size_t>(row));
    const auto image = decode(file);
    if (image.channels != first.channels || image.height != first.height || image.width != first.width) {
      throw DataError(fmt::format("{} has {} x {} pixels in {} channels, {} has {} x {} in {}",
                                  file.path.string(), image.width, image.height, image.channels,
                                  files.front().path.string(), first.width, first.height, first.channels),
                      "images of one size make a batch: give an " + ErrorText(NamedOption{"image_size"}));
    }
    std::memcpy(bytes_of_row, image.values.data(), image.values.size());
  }
};

SameSize same_size(const ImageList& files, const detail::ImageDecoder& decode, int workers) {
  if (workers < 1)
    throw UsageError(fmt::format("workers is {}", workers), "images need at least 1 to decode");
  if (files.empty()) throw DataError("there are no image files to decode");
  auto first = decode(files.front());
  return {files, decode, std::move(first)};
}

BatchSpec spec_of_images(const SameSize& images) {
  return {{.name = "images", .dtype = torch::kUInt8, .row_shape = images.shape()},
          {.name = "labels", .dtype = torch::kInt64, .role = Role::kTarget}};
}

uint64_t hash_of_tensor(const torch::Tensor& tensor) {
  return xxhash64({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
}

detail::RowReader reader_of(std::shared_ptr<const SameSize> images) {
  return [images = std::move(images)](int64_t row) -> std::vector<torch::Tensor> {
    auto bytes = torch::empty(images->shape(), torch::kUInt8);
    images->decode_into(row, bytes.mutable_data_ptr<uint8_t>());
    return {bytes, torch::tensor(images->files.label(static_cast<size_t>(row)), torch::kInt64)};
  };
}

std::vector<int64_t> labels_of(const ImageList& files) {
  std::vector<int64_t> labels;
  labels.reserve(files.size());
  for (size_t i = 0; i < files.size(); ++i) labels.push_back(files.label(i));
  return labels;
}

}  // namespace

std::string hash_of_files(const ImageList& files, int64_t count) {
  std::string text;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const auto file = files.at(i);
    text += fmt::format("{}/{}\n{} {}\n", file.path.parent_path().filename().string(),
                        file.path.filename().string(), std::max<int64_t>(0, files.bytes(i)), file.label);
  }
  return fmt::format("{:016x}", xxhash64(std::as_bytes(std::span(text))));
}

std::string hash_of_times(const ImageList& files) {
  std::vector<int64_t> times;
  times.reserve(files.size());
  for (size_t i = 0; i < files.size(); ++i) times.push_back(files.written(i));
  return fmt::format("{:016x}", xxhash64(std::as_bytes(std::span(times))));
}

DataRows detail::resident_image_rows(const ImageList& files, const ImageDecoder& decode, int workers) {
  const auto all = same_size(files, decode, workers);
  const auto rows = static_cast<int64_t>(files.size());
  auto sizes = all.shape();
  sizes.insert(sizes.begin(), rows);
  const auto images = torch::empty(sizes, torch::kUInt8), labels = torch::empty({rows}, torch::kInt64);
  auto* const bytes = images.mutable_data_ptr<uint8_t>();
  for_each_row(rows, workers, [&](int64_t row) { all.decode_into(row, bytes + row * all.bytes()); });
  std::ranges::copy(labels_of(files), labels.mutable_data_ptr<int64_t>());
  return {.rows = rows,
          .sources = resident_rows({{"images", images}, {"labels", labels, Role::kTarget}}),
          .hash_of_first =
              [=](int64_t count) {
                return fmt::format("{:016x}{:016x}", hash_of_tensor(images.narrow(0, 0, count)),
                                   hash_of_tensor(labels.narrow(0, 0, count)));
              },
          .labels = [files] { return labels_of(files); }};
}

DataRows detail::streamed_image_rows(const ImageList& files, const ImageDecoder& decode,
                                     const StreamOptions& stream) {
  if (stream.queue_bytes < 1) {
    throw UsageError(fmt::format("a queue of {} bytes holds no images", stream.queue_bytes));
  }
  const auto images = std::make_shared<const SameSize>(same_size(files, decode, stream.workers));
  return {
      .rows = static_cast<int64_t>(files.size()),
      .sources = dataset_sources(files.size(), [images] { return reader_of(images); },
                                 {.spec = spec_of_images(*images),
                                  .workers = stream.workers,
                                  .most_ahead = std::max<int64_t>(1, stream.queue_bytes / images->bytes()),
                                  .notice = stream.notice,
                                  .name = stream.name,
                                  .evaluated = stream.evaluated}),
      .hash_of_first = [files](int64_t count) { return hash_of_files(files, count); },
      .labels = [files] { return labels_of(files); }};
}

}  // namespace lockstep
