// Takes the place of number_sums.cu in a build without CUDA.
#include <lockstep/parallel/training/number_sums.h>
#include <lockstep/support/error.h>

namespace lockstep {

void add_numbers(const NumberSums&, CUstream_st*) {
  throw DeviceError(
      "the CUDA kernel that sums losses is not available: this lockstep was built without "
      "CUDA");
}

}  // namespace lockstep
