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

// The images and classes of a network.
struct LeNetShape {
  int64_t channels = 1, height = 28, width = 28;
  int64_t classes = 10;

  // Columns of the features, 50 per pixel that is left of an image: 800 for 28 x 28. 0 for images with a side
  // below kLeastSide.
  int64_t features() const { return 50 * left_of(height) * left_of(width); }

  // Lockstep's kernels compute this shape alone, torch's operations all others.
  bool has_kernels() const { return *this == LeNetShape{}; }

  bool operator==(const LeNetShape&) const = default;

  static constexpr int64_t kLeastSide = 14;
  // The pixels in height or width behind both convolutions and poolings.
  static int64_t left_of(int64_t side) { return side < kLeastSide ? 0 : ((side - 2) / 2 - 4) / 2; }
};

// Throws UsageError for a shape without features, channels or classes.
void check_shape(const LeNetShape& shape);

// The same network as a LibTorch module on the host. It owns the eight tensors, named W1, b1, ..., b4:
// 129,068 values. For another shape W1 is (20, channels, 3, 3), W3 (features, 128), W4 (128, classes) and b4
// (classes).
class LeNetImpl : public torch::nn::Module {
 public:
  // Weights are N(0, 1) x .01, drawn from a separate generator with `seed`, in the order W1, W2, W3, W4: the
  // numbers of Python's torch.manual_seed(seed) followed by four torch.randn. Biases are zero. Throws as
  // check_shape().
  explicit LeNetImpl(uint64_t seed, torch::ScalarType dtype = torch::kFloat32,
                     Kernels chosen = Kernels::kAuto, const LeNetShape& shape = {});

  // Returns the logits (n, classes) of images (n, channels, height, width).
  torch::Tensor forward(const torch::Tensor& X);

 private:
  const Kernels kernels;
  torch::Tensor W1, b1, W2, b2, W3, b3, W4, b4;
};
TORCH_MODULE(LeNet);

}  // namespace lockstep
