// The functions of class_loss_kernels.cu for a build without CUDA.
#include <lockstep/support/cuda/class_loss_kernels.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse() {
  throw DeviceError(
      "a classification's loss cannot be computed by CUDA kernels, this lockstep was built without CUDA");
}

}  // namespace

void class_loss_forward(const ClassLossForward<float>&, CUstream_st*) { refuse(); }
void class_loss_forward(const ClassLossForward<Bf16>&, CUstream_st*) { refuse(); }
void class_loss_backward(const ClassLossBackward<float>&, CUstream_st*) { refuse(); }
void class_loss_backward(const ClassLossBackward<Bf16>&, CUstream_st*) { refuse(); }
bool class_loss_kernels_take(bool) { return false; }

}  // namespace lockstep
