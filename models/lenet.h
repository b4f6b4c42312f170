// LeNet as the multi-GPU chapter writes it from scratch: eight tensors and a forward pass of functional
// operations.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include <lockstep/support/kernels.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Returns the logits (n, 10). params = {W1 (20,1,3,3), b1 (20), W2 (50,20,5,5), b2 (50), W3 (800,128), b3
// (128), W4 (128,10), b4 (10)}; X (n, 1, 28, 28) has the same dtype and device; n may be 0.
//
// On a CPU in float lockstep's kernels compute it. They are differentiable once, in the parameters. Torch's
// operations compute all other types and devices, and X that needs a gradient. Autocast applies to torch's
// operations only: lockstep's kernels compute in fp32 under it and return floats, because torch's bfloat16 is
// slower there and rounds more.
torch::Tensor lenet(const torch::Tensor& X, const Params& params);

// The same with the kernels of your choice: kTorch, or kDirect for direct sums instead of Winograd's.
torch::Tensor lenet_by(Kernels kernels, const torch::Tensor& X, const Params& params);

// The same network as a LibTorch module on the host. It owns the eight tensors, named W1, b1, ..., b4:
// 129,068 values.
class LeNetImpl : public torch::nn::Module {
 public:
  // Weights are N(0, 1) x .01, drawn from a separate generator with `seed`, in the order W1, W2, W3, W4: the
  // numbers of Python's torch.manual_seed(seed) followed by four torch.randn. Biases are zero.
  explicit LeNetImpl(uint64_t seed, torch::ScalarType dtype = torch::kFloat32,
                     Kernels chosen = Kernels::kAuto);

  torch::Tensor forward(const torch::Tensor& X);

 private:
  const Kernels kernels;
  torch::Tensor W1, b1, W2, b2, W3, b3, W4, b4;
};
TORCH_MODULE(LeNet);

}  // namespace lockstep
