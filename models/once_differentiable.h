// What our differentiable operations have in common: their gradients have no gradients.
#pragma once

#include <torch/types.h>

namespace lockstep {

// For the first line of an operation's backward(): with create_graph, which asks for gradients that can be
// differentiated in their turn, throws c10::Error; what a kernel writes would be taken for a constant. `what`
// names the layers: "LeNet's convolutions".
inline void refuse_double_backward(const char* what) {
  TORCH_CHECK(
      !torch::GradMode::is_enabled(), "our kernels of ", what,
      " can be differentiated once, but their gradient was asked for with create_graph; torch's can be "
      "differentiated again (--kernels torch, Kernels::kTorch)");
}

}  // namespace lockstep
