// gather_images() for a build without CUDA.
#include <lockstep/data/kernels/gather_images.h>
#include <lockstep/support/error.h>

namespace lockstep {

void gather_images(const uint8_t*, const int64_t*, const int64_t*, int64_t, int64_t, float*, int64_t*,
                   CUstream_st*) {
  throw DeviceError("images cannot be gathered by a CUDA kernel, this lockstep was built without CUDA");
}

}  // namespace lockstep
