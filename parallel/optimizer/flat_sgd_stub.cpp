// Takes the place of flat_sgd.cu in a build without CUDA.
#include <lockstep/parallel/optimizer/flat_sgd.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse() {
  throw DeviceError("the CUDA kernel of SGD is not available: this lockstep was built without CUDA");
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
