#include <lockstep/data/dataset.h>

#include <fmt/format.h>

#include <cstddef>

#include <lockstep/support/error.h>
#include <lockstep/support/files/xxhash64.h>

namespace lockstep {

ImageSet first_rows(const ImageSet& set, int64_t rows) {
  if (rows < 1 || rows > set.size()) {
    throw UsageError(fmt::format("{} rows were asked for, the data set has 1 to {}", rows, set.size()));
  }
  return {set.images.narrow(0, 0, rows), set.labels.narrow(0, 0, rows)};
}

std::string hash_of(const ImageSet& set) {
  const auto hash = [](const torch::Tensor& tensor) {
    return xxhash64({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  };
  return fmt::format("{:016x}{:016x}", hash(set.images), hash(set.labels));
}

}  // namespace lockstep
