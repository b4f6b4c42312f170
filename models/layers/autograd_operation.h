// The code that lockstep's differentiable operations share.
#pragma once

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <cstdint>

namespace lockstep {

// Call this first in an operation's backward(): its gradients have no gradients. Throws c10::Error if
// create_graph was given, which asks for gradients that can be differentiated: torch would take what a kernel
// writes for a constant. `what` names the layers, such as "LeNet's convolutions".
inline void refuse_double_backward(const char* what) {
  TORCH_CHECK(
      !torch::GradMode::is_enabled(), "lockstep's kernels of ", what,
      " can be differentiated once, but create_graph asks for differentiable gradients; torch's kernels have "
      "them (Kernels::kTorch)");
}

// Keeps the address of a table of kernels from forward() to backward(). The table must outlive the graph.
template <class Table>
void save_kernels(torch::autograd::AutogradContext* context, const Table& kernels) {
  context->saved_data["kernels"] = reinterpret_cast<int64_t>(&kernels);
}
template <class Table>
const Table& saved_kernels(torch::autograd::AutogradContext* context) {
  return *reinterpret_cast<const Table*>(context->saved_data["kernels"].toInt());
}

}  // namespace lockstep
