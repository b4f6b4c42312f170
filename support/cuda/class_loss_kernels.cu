#include <lockstep/support/cuda/class_loss_kernel.h>
#include <lockstep/support/cuda/launch.h>

namespace lockstep {

void class_loss_forward(const ClassLossForward<float>& pass, CUstream_st* stream) {
  class_loss_forward_with(CudaLaunch(stream), pass);
}

void class_loss_forward(const ClassLossForward<Bf16>& pass, CUstream_st* stream) {
  class_loss_forward_with(CudaLaunch(stream), pass);
}

void class_loss_backward(const ClassLossBackward<float>& pass, CUstream_st* stream) {
  class_loss_backward_with(CudaLaunch(stream), pass);
}

void class_loss_backward(const ClassLossBackward<Bf16>& pass, CUstream_st* stream) {
  class_loss_backward_with(CudaLaunch(stream), pass);
}

bool class_loss_kernels_take(bool gpu_memory) { return gpu_memory; }

}  // namespace lockstep
