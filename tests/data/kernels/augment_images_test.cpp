// The CUDA kernel, emulated: augment_images_emulated.cpp.
#include <lockstep/tests/data/kernels/augment_images_cases.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

using namespace lockstep::testing;

TEST_CASE("images are augmented by the kernel as on a CPU, bit for bit") {
  emulated_order = GENERATE(ThreadOrder::kForward, ThreadOrder::kBackward);
  check_all_augmented(torch::kCPU);
}
