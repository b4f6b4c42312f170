// LeNet as the multi-GPU chapter writes it from scratch: eight tensors and a forward pass of functional
// operations.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include <lockstep/models/model_layer.h>
#include <lockstep/support/kernels.h>
#include <lockstep/support/types.h>

namespace lockstep {

// The forward pass. params = {W1 (20,1,3,3), b1 (20), W2 (50,20,5,5), b2 (50), W3 (800,128), b3 (128), W4
// (128,10), b4 (10)}, X (n, 1, 28, 28) of the same dtype and device; returns logits (n, 10). n may be 0.
// Floats on a processor are computed by our kernels, lenet_features() and lenet_head(), which are
// differentiable in the parameters, once; where X wants a gradient, and all else, by torch's operations.
// Autocast counts for torch's alone: ours compute in fp32 under it too, and give floats, since torch's
// bfloat16 is slower there and rounds more.
torch::Tensor lenet(const torch::Tensor& X, const Params& params);

// The same by kernels of one's choice: torch's alone, or direct sums instead of Winograd's.
torch::Tensor lenet_by(Kernels kernels, const torch::Tensor& X, const Params& params);

// Whether our kernels compute a network whose images and parameters are of this type and on such a device.
bool lenet_has_own_kernels(Kernels kernels, torch::ScalarType dtype, torch::DeviceType device);

// The same network as a LibTorch module that owns the eight tensors (named W1, b1, ... b4; 129,068 values),
// on the host.
class LeNetImpl : public torch::nn::Module {
 public:
  // Weights are N(0, 1) x .01 drawn from a generator of their own with `seed`, in the order W1, W2, W3, W4:
  // the very numbers of Python's torch.manual_seed(seed) followed by four torch.randn. Biases are zero.
  explicit LeNetImpl(uint64_t seed, torch::ScalarType dtype = torch::kFloat32,
                     Kernels chosen = Kernels::kAuto);

  torch::Tensor forward(const torch::Tensor& X);

  // Of a network that a shared_ptr holds.
  std::vector<ModelLayer> layers();

 private:
  const Kernels kernels;
  torch::Tensor W1, b1, W2, b2, W3, b3, W4, b4;
};
TORCH_MODULE(LeNet);

// Elements that one row of a batch makes the forward and backward pass hold: what is kept for the backward
// pass, and the gradients alive at its widest point. own_kernels: see lenet_has_own_kernels(). For the memory
// estimate of a plan.
int64_t lenet_activations_per_row(bool own_kernels);

// Bytes that our kernels hold beside them, whatever the rows, with so many threads.
int64_t lenet_working_bytes(int64_t threads);

// See models/factory.h.
int64_t lenet_training_flops_per_row();

}  // namespace lockstep
