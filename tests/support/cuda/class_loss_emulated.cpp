// The functions of class_loss_kernels.h for tests: the CUDA kernels, run on the CPU. They replace the
// library's.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/support/cuda/class_loss_kernel.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

namespace lockstep {

void class_loss_forward(const ClassLossForward<float>& pass, CUstream_st*) {
  class_loss_forward_with(testing::FibreLaunch{testing::emulated_order}, pass);
}

void class_loss_forward(const ClassLossForward<Bf16>& pass, CUstream_st*) {
  class_loss_forward_with(testing::FibreLaunch{testing::emulated_order}, pass);
}

void class_loss_backward(const ClassLossBackward<float>& pass, CUstream_st*) {
  class_loss_backward_with(testing::FibreLaunch{testing::emulated_order}, pass);
}

void class_loss_backward(const ClassLossBackward<Bf16>& pass, CUstream_st*) {
  class_loss_backward_with(testing::FibreLaunch{testing::emulated_order}, pass);
}

bool class_loss_kernels_take(bool gpu_memory) { return !gpu_memory; }

}  // namespace lockstep
