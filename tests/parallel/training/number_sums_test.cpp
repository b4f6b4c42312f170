// The emulated kernel (number_sums_emulated.cpp).
#include <lockstep/tests/parallel/training/number_sums_cases.h>
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

using namespace lockstep::testing;

TEST_CASE("the kernel that sums losses adds in double, and keeps the first step whose loss is not finite") {
  emulated_order = GENERATE(ThreadOrder::kForward, ThreadOrder::kBackward);
  check_number_sums(torch::kCPU);
}
