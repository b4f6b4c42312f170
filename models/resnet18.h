// ResNet-18 as the concise multi-GPU chapters write it for small images: it starts with a 3x3 convolution of
// stride 1 and has no max-pooling (He et al., "Deep Residual Learning for Image Recognition", 2015, has 7x7,
// stride 2 and a max-pool), a bias in every convolution, and no batch normalisation on the shortcuts.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/models/initialize.h>
#include <lockstep/support/kernels.h>

namespace torch::nn {
class Conv2dImpl;
class LinearImpl;
}  // namespace torch::nn

namespace lockstep {

class BatchNorm2dImpl;
class ConvLayers;
struct TwoUses;

struct ResNet18Options {
  int64_t channels = 1;  // of X
  int64_t classes = 10;
  int64_t width = 64;      // channels of the first stage; the others have 2, 4 and 8 times as many
  bool batch_norm = true;  // false: the same network without its batch normalisations
  uint64_t seed = 0;
  torch::ScalarType dtype = torch::kFloat32;
  Initialization initialization = Initialization::kNormal;
  // Unless kTorch, in float or bfloat16: in training mode batch normalisation, the addition before ReLU and
  // ReLU are one operation, on a CPU (if width is a multiple of 16) or on a GPU in a build with CUDA. It
  // rounds less. The biases of the convolutions before it get no gradient (.grad stays as it was, their hooks
  // run), since the normalisation removes them. With kAuto lockstep computes 3x3 convolutions of stride 1 on
  // a CPU where it is faster than torch, in any mode. Under autocast to bfloat16 on a CPU the first
  // convolution is computed in float.
  Kernels kernels = Kernels::kAuto;
};

// The same for all options.
inline constexpr int64_t kStages = 4;
inline constexpr int64_t kBlocksPerStage = 2;

// Throws UsageError unless the sizes are positive and dtype is floating point.
void check_options(const ResNet18Options& options);

// relu(conv-bn-relu-conv-bn(X) + shortcut(X)), 3x3 convolutions. With stride 2 the first convolution halves
// the image and the shortcut is a 1x1 convolution of stride 2; with stride 1 it is X itself. X and the result
// are given twice, for conv-bn-relu-conv-bn and for the shortcut, in the same memory.
class ResidualImpl : public torch::nn::Module {
 public:
  ResidualImpl(int64_t channels_in, int64_t channels_out, int64_t stride, bool batch_norm,
               std::shared_ptr<const ConvLayers> conv_layers);

  TwoUses forward(const TwoUses& X);  // (n, in, h, w) -> (n, out, ceil(h / stride), ...)

 private:
  const std::shared_ptr<const ConvLayers> layers;
  std::shared_ptr<torch::nn::Conv2dImpl> conv1, conv2, conv3;
  std::shared_ptr<BatchNorm2dImpl> bn1, bn2;
};

// Parameters and buffers have the names and the order of the chapters' Python network, so that weights can be
// exchanged by name: "0.weight" (the first convolution), "1.running_mean", "resnet_block2.0.conv3.bias",
// "fc.1.weight". The chapters' options give 11,175,818 parameters.
//
// 4-D weights and all activations are in torch's channels_last format, in which oneDNN and cuDNN compute
// fastest; the values do not depend on it. Code that replaces a weight's memory with set_data() should keep
// its strides.
class ResNet18Impl : public torch::nn::Module {
 public:
  // Builds the network on the host. The initial weights have the bits of Python's torch.manual_seed(seed),
  // the chapters' network and net.apply(init_weights), then are converted to dtype: networks of all dtypes
  // start alike. Leaves torch's process-wide generator as it was; for threads see SeededGenerator. Throws as
  // check_options() does.
  explicit ResNet18Impl(const ResNet18Options& options = {});

  // Returns logits (n, classes). X (n, channels, h, w) has the parameters' dtype and device and any memory
  // format. n may be 0 in evaluation mode. Training mode refuses a batch that leaves a batch normalisation a
  // single value per channel (n = 1 and an image of 8x8 or smaller).
  torch::Tensor forward(const torch::Tensor& X);

  // From now on convolutions and the linear layer multiply by these bf16 weights under autocast to bfloat16,
  // in training and evaluation, instead of converting the parameters: one for each of parameters(), in their
  // order. The caller keeps them up to date. An empty list ends this. Throws UsageError if their number,
  // sizes, strides, device or dtype are others.
  void use_bf16_weights(const std::vector<torch::Tensor>& bf16_weights);

  // As torch::nn::Module's, but the counters of the batch normalisations stay int64, as in Python.
  using torch::nn::Module::to;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;

 private:
  const std::shared_ptr<ConvLayers> layers;
  std::shared_ptr<torch::nn::Conv2dImpl> stem;
  std::shared_ptr<BatchNorm2dImpl> stem_bn;
  std::vector<std::shared_ptr<ResidualImpl>> blocks;
  std::shared_ptr<torch::nn::LinearImpl> linear;
};
TORCH_MODULE(ResNet18);

}  // namespace lockstep
