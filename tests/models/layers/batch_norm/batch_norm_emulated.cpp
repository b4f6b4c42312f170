// The functions of batch_norm_kernels.h for tests: the CUDA kernels, run on the CPU. They replace the
// library's.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/models/layers/batch_norm/batch_norm_backward_kernel.h>
#include <lockstep/models/layers/batch_norm/batch_norm_forward_kernel.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

namespace lockstep {

void batch_norm_relu_forward(const BatchNormForward<float>& layer, CUstream_st*) {
  batch_norm_forward_with(testing::FibreLaunch{testing::emulated_order}, layer);
}

void batch_norm_relu_forward(const BatchNormForward<Bf16>& layer, CUstream_st*) {
  batch_norm_forward_with(testing::FibreLaunch{testing::emulated_order}, layer);
}

void batch_norm_relu_backward(const BatchNormBackward<float>& layer, CUstream_st*) {
  batch_norm_backward_with(testing::FibreLaunch{testing::emulated_order}, layer);
}

void batch_norm_relu_backward(const BatchNormBackward<Bf16>& layer, CUstream_st*) {
  batch_norm_backward_with(testing::FibreLaunch{testing::emulated_order}, layer);
}

bool batch_norm_kernels_take(bool gpu_memory) { return !gpu_memory; }

}  // namespace lockstep
