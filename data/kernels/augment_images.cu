#include <lockstep/data/kernels/augment_images.h>
#include <lockstep/data/kernels/augment_images_kernel.h>
#include <lockstep/support/cuda/launch.h>

namespace lockstep {

void augment_images(const AugmentedRows& batch, float* X, CUstream_st* stream) {
  augment_images_with(CudaLaunch(stream), batch, X);
}

void augment_images(const AugmentedRows& batch, uint8_t* X, CUstream_st* stream) {
  augment_images_with(CudaLaunch(stream), batch, X);
}

}  // namespace lockstep
