// The kernel with one thread per CUDA thread, for ThreadSanitizer.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/tests/catch.h>
#include <vector>

#include <lockstep/data/kernels/gather_images_kernel.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("threads that gather images have no data race and give the same result") {
  const int64_t pixels = GENERATE(12, 13);
  const std::vector<int64_t> rows{2, 0, 1, 2, 2};
  const std::vector<int64_t> labels{10, 11, 12};
  std::vector<uint8_t> images(static_cast<size_t>(3 * pixels));
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<uint8_t>(5 * i);
  std::vector<float> X(rows.size() * static_cast<size_t>(pixels));
  std::vector<int64_t> y(rows.size());
  gather_images_with(ThreadLaunch{BlockTiming::kAllAtOnce},
                     {images.data(), labels.data(), rows.data(), static_cast<int64_t>(rows.size()), pixels,
                      X.data(), y.data()});
  CHECK(y == std::vector<int64_t>{12, 10, 11, 12, 12});
  for (size_t i = 0; i < X.size(); ++i) {
    const auto width = static_cast<size_t>(pixels);
    CHECK(X[i] ==
          static_cast<float>(images[static_cast<size_t>(rows[i / width]) * width + i % width]) / 255.0f);
  }
}
