#include <lockstep/data/dataset.h>

#include <fmt/format.h>

#include <cstddef>
#include <unordered_map>

#include <lockstep/data/images/normalize.h>
#include <lockstep/data/resident_rows.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/xxhash64.h>

namespace lockstep {

namespace {

std::vector<uint64_t> hashes_of(const ImageSet& set) {
  std::vector<uint64_t> hashes;
  const auto bytes = static_cast<size_t>(set.images[0].numel());
  const auto* image = static_cast<const std::byte*>(set.images.const_data_ptr());
  for (int64_t row = 0; row < set.size(); ++row, image += bytes) hashes.push_back(xxhash64({image, bytes}));
  return hashes;
}

}  // namespace

std::string to_string(const ImageShape& shape) {
  return fmt::format("{} x {} x {}", shape.channels, shape.height, shape.width);
}

std::string same_in_train_and_test(const Dataset& set) {
  std::unordered_map<uint64_t, size_t> train;  // hash: the first row
  const auto trained = hashes_of(set.train);
  for (size_t row = 0; row < trained.size(); ++row) train.try_emplace(trained[row], row);
  const auto test = hashes_of(set.test);
  int64_t count = 0;
  std::string example;
  for (size_t row = 0; row < test.size(); ++row) {
    const auto same = train.find(test[row]);
    if (same == train.end()) continue;
    if (count++ == 0) example = fmt::format("row {}, which is row {} there", row, same->second);
  }
  if (count == 0) return {};
  return fmt::format("{} for testing {} among those for training, too, such as {}", counted(count, "image"),
                     count == 1 ? "is" : "are", example);
}

ImageSet first_rows(const ImageSet& set, int64_t rows) {
  if (rows < 1 || rows > set.size()) {
    throw UsageError(fmt::format("{} rows were asked for, the data set has 1 to {}", rows, set.size()));
  }
  return {set.images.narrow(0, 0, rows), set.labels.narrow(0, 0, rows)};
}

SourceFactory resident_images(const ImageSet& set) {
  return resident_rows({{"images", set.images}, {"labels", set.labels.to(torch::kInt64), Role::kTarget}});
}

SourceFactory resident_sources(const ImageSet& set) {
  return normalized(resident_images(set), Normalization{});
}

std::string hash_of(const ImageSet& set) {
  const auto hash = [](const torch::Tensor& tensor) {
    return xxhash64({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  };
  return fmt::format("{:016x}{:016x}", hash(set.images), hash(set.labels));
}

}  // namespace lockstep
