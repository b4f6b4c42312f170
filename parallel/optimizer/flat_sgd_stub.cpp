// The twin of flat_sgd.cu for a build without CUDA.
#include <lockstep/parallel/optimizer/flat_sgd.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse() {
  throw DeviceError("SGD cannot be computed by a CUDA kernel, this lockstep was built without CUDA");
}

}  // namespace

void flat_sgd(const FlatSgdBuffers<float>&, const FlatSgdOptions&, const double*, const float*,
              CUstream_st*) {
  refuse();
}

void flat_sgd(const FlatSgdBuffers<double>&, const FlatSgdOptions&, const double*, const double*,
              CUstream_st*) {
  refuse();
}

}  // namespace lockstep
