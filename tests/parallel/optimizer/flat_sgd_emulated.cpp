// flat_sgd() for tests: runs the product's kernel on the CPU, in place of the library's function.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/parallel/optimizer/flat_sgd_kernel.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

namespace lockstep {

void flat_sgd(const FlatSgdBuffers<float>& buffers, const FlatSgdOptions& options, const double* lr,
              const float* scale, CUstream_st*) {
  flat_sgd_with(testing::FibreLaunch{testing::emulated_order}, buffers, options, lr, scale);
}

void flat_sgd(const FlatSgdBuffers<double>& buffers, const FlatSgdOptions& options, const double* lr,
              const double* scale, CUstream_st*) {
  flat_sgd_with(testing::FibreLaunch{testing::emulated_order}, buffers, options, lr, scale);
}

}  // namespace lockstep
