// augment_images() for tests: the CUDA kernel, run on the CPU. It replaces the library's.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/data/kernels/augment_images.h>
#include <lockstep/data/kernels/augment_images_kernel.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

namespace lockstep {

void augment_images(const AugmentedRows& batch, float* X, CUstream_st*) {
  augment_images_with(testing::FibreLaunch{testing::emulated_order}, batch, X);
}

void augment_images(const AugmentedRows& batch, uint8_t* X, CUstream_st*) {
  augment_images_with(testing::FibreLaunch{testing::emulated_order}, batch, X);
}

}  // namespace lockstep
