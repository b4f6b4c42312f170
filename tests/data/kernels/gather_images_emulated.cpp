// gather_images() for tests: the CUDA kernel, run on the CPU. It replaces the library's.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/data/kernels/gather_images.h>
#include <lockstep/data/kernels/gather_images_kernel.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

namespace lockstep {

void gather_images(const uint8_t* images, const int64_t* labels, const int64_t* rows, int64_t n,
                   int64_t pixels, float* X, int64_t* y, CUstream_st*) {
  gather_images_with(testing::FibreLaunch{testing::emulated_order}, {images, labels, rows, n, pixels, X, y});
}

}  // namespace lockstep
