// Memory and arithmetic of a step of ResNet-18, from its options.
#include <algorithm>

#include <lockstep/models/cpu/conv3x3/conv3x3.h>
#include <lockstep/models/model_costs.h>

namespace lockstep {

namespace {

// Calls use(channels before the stage, channels, pixels of its images) for each stage.
template <class Use>
void over_stages(const ResNet18Options& options, int64_t height, int64_t width, const Use& use) {
  int64_t before = options.width;
  for (int64_t channels = before; channels < options.width << kStages; channels *= 2) {
    use(before, channels, height * width);
    before = channels;
    height = (height + 1) / 2;
    width = (width + 1) / 2;
  }
}

}  // namespace

int64_t resnet18_activations_per_row(const ResNet18Options& options, int64_t height, int64_t width) {
  // Kept for each convolution: the input of its batch normalisation, and the ReLU's output. Normalising and
  // adding the shortcut happen in place of the latter. Without normalisation the former is not kept.
  const int64_t tensors = options.batch_norm ? 2 : 1;
  // Held at once in a block's backward pass: the gradients of its output, of its shortcut, of a convolution's
  // output and of its input. Counted in the stage where they are largest.
  constexpr int64_t kGradients = 4;
  int64_t held = (options.channels + tensors * options.width) * height * width;  // X, stem
  int64_t gradients = 0;
  over_stages(options, height, width, [&](int64_t, int64_t channels, int64_t pixels) {
    held += 2 * kBlocksPerStage * tensors * channels * pixels;
    gradients = std::max(gradients, kGradients * channels * pixels);
  });
  const int64_t features = options.width << (kStages - 1);
  return held + gradients + features + options.classes;  // the linear layer and the softmax start from these
}

int64_t resnet18_floats_per_row(const ResNet18Options& options, torch::DeviceType device, int64_t height,
                                int64_t width) {
  if (device != torch::kCPU || options.kernels == Kernels::kTorch || options.dtype != torch::kFloat32)
    return 0;
  int64_t floats = options.width * height * width;  // the first convolution's output
  if (options.kernels == Kernels::kDirect || !fast_bf16_kernels()) return floats;
  over_stages(options, height, width, [&](int64_t before, int64_t channels, int64_t pixels) {
    const int64_t strided = channels > before ? 1 : 0;
    const bool by_lockstep = channels % Conv3x3Shape::kChannels == 0;
    floats += by_lockstep ? (2 * kBlocksPerStage - strided) * channels * pixels : 0;
  });
  return floats;
}

int64_t resnet18_training_flops_per_row(const ResNet18Options& options, int64_t height, int64_t width) {
  const int64_t first = height * width * options.width * options.channels * 9;  // multiplications
  int64_t forward = first;
  over_stages(options, height, width, [&](int64_t before, int64_t channels, int64_t pixels) {
    const int64_t shortcut =
        channels > before ? before : 0;  // the 1x1 convolution of the stage's first block
    const int64_t others = (2 * kBlocksPerStage - 1) * channels * 9;
    forward += pixels * channels * (before * 9 + others + shortcut);
  });
  forward += (options.width << (kStages - 1)) * options.classes;
  return 2 * (3 * forward - first);
}

int64_t resnet18_working_bytes(const ResNet18Options& options, torch::DeviceType device, int64_t threads) {
  const int64_t widest = options.width << (kStages - 1);
  const bool by_lockstep = device == torch::kCPU && options.kernels == Kernels::kAuto &&
                           options.dtype == torch::kFloat32 && widest % Conv3x3Shape::kChannels == 0;
  return by_lockstep ? conv3x3_bytes({.height = 4, .width = 4, .in = widest, .out = widest}, threads) : 0;
}

}  // namespace lockstep
