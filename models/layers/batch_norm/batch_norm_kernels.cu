#include <lockstep/models/layers/batch_norm/batch_norm_backward_kernel.h>
#include <lockstep/models/layers/batch_norm/batch_norm_forward_kernel.h>
#include <lockstep/support/cuda/launch.h>

namespace lockstep {

void batch_norm_relu_forward(const BatchNormForward<float>& layer, CUstream_st* stream) {
  batch_norm_forward_with(CudaLaunch(stream), layer);
}

void batch_norm_relu_forward(const BatchNormForward<Bf16>& layer, CUstream_st* stream) {
  batch_norm_forward_with(CudaLaunch(stream), layer);
}

void batch_norm_relu_backward(const BatchNormBackward<float>& layer, CUstream_st* stream) {
  batch_norm_backward_with(CudaLaunch(stream), layer);
}

void batch_norm_relu_backward(const BatchNormBackward<Bf16>& layer, CUstream_st* stream) {
  batch_norm_backward_with(CudaLaunch(stream), layer);
}

bool batch_norm_kernels_take(bool gpu_memory) { return gpu_memory; }

}  // namespace lockstep
