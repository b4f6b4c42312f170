// The emulated kernel (flat_fill_emulated.cpp).
#include <lockstep/tests/parallel/gradients/flat_fill_cases.h>
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

using namespace lockstep::testing;

TEST_CASE("the kernel that fills a flat buffer writes each number once, in the buffer's type, and no gap") {
  emulated_order = GENERATE(ThreadOrder::kForward, ThreadOrder::kBackward);
  check_flat_fills<float>(torch::kCPU);
  check_flat_fills<double>(torch::kCPU);
}
