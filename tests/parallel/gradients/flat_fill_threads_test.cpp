// The kernel with one thread per CUDA thread, for ThreadSanitizer.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/tests/catch.h>
#include <vector>

#include <lockstep/parallel/gradients/flat_fill_kernel.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("threads of the kernel that fills a flat buffer have no data race") {
  const size_t size = GENERATE(8200, 8203);
  std::vector<float> numbers(size), to(2 * size + 32, 7);
  std::vector<Bf16> rounded(size);
  for (size_t i = 0; i < size; ++i) {
    numbers[i] = static_cast<float>(i + 1);
    rounded[i] = to_bf16(numbers[i]);
  }
  const auto n = static_cast<int64_t>(size);
  const std::vector<FlatPiece<float>> pieces{{numbers.data(), to.data(), n, false},
                                             {rounded.data(), to.data() + size + 5, n, true}};
  fill_flat_with(ThreadLaunch{BlockTiming::kAllAtOnce}, std::span<const FlatPiece<float>>(pieces));
  int wrong = 0;
  for (size_t i = 0; i < size; ++i) {
    wrong += to[i] != numbers[i] || to[size + 5 + i] != to_float(rounded[i]);
  }
  for (size_t i = size; i < size + 5; ++i) wrong += to[i] != 7;
  CHECK(wrong == 0);
  CHECK(to[2 * size + 5] == 7);
}
