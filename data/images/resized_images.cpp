#include <lockstep/data/images/resized_images.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>

#include <lockstep/data/images/for_each_row.h>
#include <lockstep/data/images/pixels.h>
#include <lockstep/support/error.h>

namespace lockstep {

ImageSet resized_images(const ImageSet& set, int size, int workers) {
  if (workers < 1)
    throw UsageError(fmt::format("workers is {}", workers), "images need at least 1 to resize");
  const auto shape = set.shape();
  if (shape.height == size && shape.width == size) return set;
  const auto images = set.images.contiguous();
  const auto pixels = images[0].numel(), resized_pixels = shape.channels * size * size;
  ImageSet resized = {torch::empty({set.size(), shape.channels, size, size}, torch::kUInt8), set.labels};
  const auto* const from = images.const_data_ptr<uint8_t>();
  auto* const to = resized.images.mutable_data_ptr<uint8_t>();
  for_each_row(set.size(), workers, [&](int64_t row) {
    const auto* const first = from + row * pixels;
    const auto image = resize_and_crop({.channels = static_cast<int>(shape.channels),
                                        .height = static_cast<int>(shape.height),
                                        .width = static_cast<int>(shape.width),
                                        .values = {first, first + pixels}},
                                       size);
    std::ranges::copy(image.values, to + row * resized_pixels);
  });
  return resized;
}

}  // namespace lockstep
