// The kernel with one thread per CUDA thread, for ThreadSanitizer.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/tests/catch.h>
#include <vector>

#include <lockstep/data/kernels/augment_images_kernel.h>

using namespace lockstep;
using namespace lockstep::testing;

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
