// The kernel with one thread per CUDA thread, for ThreadSanitizer.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/tests/catch.h>
#include <vector>

#include <lockstep/parallel/optimizer/flat_sgd_kernel.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("threads of the SGD kernel have no data race") {
  const size_t size = GENERATE(1100, 1103);
  std::vector<float> params(size), grads(size), momentum(size);
  std::vector<Bf16> bf16(size);
  for (size_t i = 0; i < size; ++i) grads[i] = static_cast<float>(i + 1);
  const double lr = .5;
  const float scale = 2;
  const FlatSgdBuffers<float> buffers{params.data(), grads.data(), momentum.data(), bf16.data(),
                                      static_cast<int64_t>(size)};
  flat_sgd_with(ThreadLaunch{BlockTiming::kAllAtOnce}, buffers, {.momentum = .5}, &lr, &scale);
  int wrong = 0;
  for (size_t i = 0; i < size; ++i) {  // g = 2 (i + 1), m = g, p = 0 - lr m
    const auto expected = static_cast<float>(i + 1);
    wrong += momentum[i] != 2 * expected || params[i] != -expected || grads[i] != 0 ||
             bf16[i].bits != to_bf16(-expected).bits;
  }
  CHECK(wrong == 0);
}
