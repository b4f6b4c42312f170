// The functions of batch_norm_kernels.cu for a build without CUDA.
#include <lockstep/models/layers/batch_norm/batch_norm_kernels.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse() {
  throw DeviceError(
      "batch normalisation cannot be computed by CUDA kernels, this lockstep was built without CUDA");
}

}  // namespace

void batch_norm_relu_forward(const BatchNormForward<float>&, CUstream_st*) { refuse(); }

void batch_norm_relu_forward(const BatchNormForward<Bf16>&, CUstream_st*) { refuse(); }

void batch_norm_relu_backward(const BatchNormBackward<float>&, CUstream_st*) { refuse(); }

void batch_norm_relu_backward(const BatchNormBackward<Bf16>&, CUstream_st*) { refuse(); }

bool batch_norm_kernels_take(bool) { return false; }

}  // namespace lockstep
