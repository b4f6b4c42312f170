#include <lockstep/data/kernels/gather_images.h>
#include <lockstep/data/kernels/gather_images_kernel.h>
#include <lockstep/support/cuda/launch.h>

namespace lockstep {

void gather_images(const uint8_t* images, const int64_t* labels, const int64_t* rows, int64_t n,
                   int64_t pixels, float* X, int64_t* y, CUstream_st* stream) {
  gather_images_with(CudaLaunch(stream), {images, labels, rows, n, pixels, X, y});
}

}  // namespace lockstep
