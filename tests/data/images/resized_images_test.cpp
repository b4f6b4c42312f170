// Rows of bytes that are resized, held against torchvision's: tests/reference/resized_rows.py.
#include <torch/types.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/data/images/resized_images.h>
#include <lockstep/tests/data/images/image_reference.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

ImageSet rows_to_resize(const std::vector<int64_t>& shape, int64_t rows) {
  std::vector<int64_t> sizes = {rows};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  ImageSet set = {torch::empty(sizes, torch::kUInt8), torch::arange(rows).to(torch::kUInt8)};
  for (int64_t row = 0; row < rows; ++row) {
    auto pixels = set.images[row].flatten();
    for (int64_t p = 0; p < pixels.numel(); ++p) pixels[p] = (row * 31 + p * 7 + p * p / 5) % 256;
  }
  return set;
}

}  // namespace

TEST_CASE("rows of bytes are resized and cropped to torchvision's pixels, by any number of threads") {
  for (const auto& entry : reference("resized_rows.json")) {
    const auto shape = entry["shape"].get<std::vector<int64_t>>();
    const auto size = entry["size"].get<int64_t>();
    INFO(entry["shape"] << " to " << size);
    const auto set = rows_to_resize(shape, 2);
    for (const int workers : {1, 3}) {
      const auto resized = resized_images(set, static_cast<int>(size), workers);
      REQUIRE(resized.images.sizes().equals({2, shape[0], size, size}));
      CHECK(resized.labels.is_same(set.labels));
      const auto* const first = resized.images.const_data_ptr<uint8_t>();
      CHECK(
          std::ranges::equal(std::vector(first, first + resized.images.numel()), bytes_of(entry["pixels"])));
    }
  }
}

TEST_CASE("images of the size that is asked for are shared, and no workers are refused") {
  const auto set = rows_to_resize({1, 6, 6}, 1);
  CHECK(resized_images(set, 6, 1).images.is_same(set.images));
  CHECK(refusal_of([&] { resized_images(set, 7, 0); }) == "workers is 0");
}
