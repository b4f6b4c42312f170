// The CUDA kernel, emulated: gather_images_emulated.cpp.
#include <lockstep/tests/data/kernels/gather_images_cases.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

using namespace lockstep::testing;

TEST_CASE("images are gathered and divided as torch does it") {
  emulated_order = GENERATE(ThreadOrder::kForward, ThreadOrder::kBackward);
  check_gathers(torch::kCPU);
}

TEST_CASE("every pixel value is divided exactly") { check_every_value(torch::kCPU); }
