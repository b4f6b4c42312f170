// The kernel with one thread per CUDA thread, for ThreadSanitizer.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <vector>

#include <lockstep/data/kernels/augment_images_kernel.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Starts the kernel with as few rows of blocks as a larger image has for each of its parts.
struct FewRows {
  unsigned most;

  template <class... Params, class... Args>
  void operator()(void (*kernel)(Params...), dim3 grid, dim3 block, Args... args) const {
    grid.y = std::min(grid.y, most);
    FibreLaunch()(kernel, grid, block, args...);
  }
};

// Takes the place of CUDA, which refuses more.
struct GridOf {
  dim3* grid;

  template <class Kernel, class... Args>
  void operator()(Kernel, dim3 asked, dim3, Args...) const {
    *grid = asked;
  }
};

}  // namespace

TEST_CASE("the largest images have no more rows of blocks than CUDA takes") {
  dim3 grid{};
  const AugmentedRows batch = {nullptr, nullptr, 7, 0, {4, 32767, 32767}, {}, nullptr};
  augment_images_with(GridOf{&grid}, batch, static_cast<uint8_t*>(nullptr));
  CHECK(grid.x == 7);
  CHECK(grid.y == 65535);
}

TEST_CASE("blocks go on to further pixels where an image has more than all blocks take at a time") {
  const ImageSizes shape = {3, 70, 61};  // 12,810 bytes: four parts
  const std::vector<int64_t> rows{1, 0};
  std::vector<uint8_t> images(2 * 12810), expected(images.size()), found(images.size());
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<uint8_t>(i * i / 7);
  const AugmentedRows batch = {
      images.data(), rows.data(), 2, 1, shape, draws_of(parse_augmentation("crop:5,flip"), 3, 1), nullptr};
  augment_rows(batch, expected.data(), 1);
  for (const unsigned most : {1u, 2u, 3u}) {
    std::ranges::fill(found, uint8_t{0});
    augment_images_with(FewRows{most}, batch, found.data());
    CHECK(found == expected);
  }
}

TEST_CASE("threads that augment images have no data race and give the same result") {
  const ImageSizes shape = {2, 5, 6};
  const std::vector<int64_t> rows{2, 0, 1, 2};
  std::vector<uint8_t> images(180), expected(240), found(240);
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<uint8_t>(7 * i);
  const AugmentedRows batch = {
      images.data(), rows.data(), 4, 1, shape, draws_of(parse_augmentation("crop:2,flip"), 1, 0), nullptr};
  augment_rows(batch, expected.data(), 1);
  augment_images_with(ThreadLaunch{BlockTiming::kOneByOne}, batch, found.data());
  CHECK(found == expected);
}
