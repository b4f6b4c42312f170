#include <lockstep/parallel/optimizer/flat_sgd_kernel.h>
#include <lockstep/support/cuda/launch.h>

namespace lockstep {

void flat_sgd(const FlatSgdBuffers<float>& buffers, const FlatSgdOptions& options, const double* lr,
              const float* scale, CUstream_st* stream) {
  flat_sgd_with(CudaLaunch(stream), buffers, options, lr, scale);
}

void flat_sgd(const FlatSgdBuffers<double>& buffers, const FlatSgdOptions& options, const double* lr,
              const double* scale, CUstream_st* stream) {
  flat_sgd_with(CudaLaunch(stream), buffers, options, lr, scale);
}

}  // namespace lockstep
