// What a step of ResNet-18 takes, counted from its options.
#include <lockstep/models/cpu/conv3x3.h>
#include <lockstep/models/resnet18.h>

namespace lockstep {

int64_t resnet18_activations_per_row(const ResNet18Options& options, int64_t height, int64_t width) {
  // Kept for each convolution: what its batch normalisation starts from, and the ReLU's output. Normalising
  // and adding the shortcut happen in place of the latter, and without normalisation the former is not kept.
  const int64_t tensors = options.batch_norm ? 2 : 1;
  // Alive at once in a block's backward pass: the gradients of its output, of its shortcut, of a
  // convolution's output and input. Counted in each stage: an allocator finds little use for another stage's
  // sizes.
  constexpr int64_t kGradients = 4;
  int64_t channels = options.width;
  int64_t held = options.channels * height * width + tensors * channels * height * width;  // X, stem
  for (int64_t stage = 1; stage <= kStages; ++stage) {
    if (stage > 1) {
      channels *= 2;
      height = (height + 1) / 2;
      width = (width + 1) / 2;
    }
    held += (2 * kBlocksPerStage * tensors + kGradients) * channels * height * width;
  }
  return held + channels + options.classes;  // what the linear layer and the softmax start from
}

int64_t resnet18_training_flops_per_row(const ResNet18Options& options, int64_t height, int64_t width) {
  int64_t channels = options.width;
  const int64_t first = height * width * channels * options.channels * 9;  // multiplications
  int64_t forward = first;
  for (int64_t stage = 1; stage <= kStages; ++stage) {
    const int64_t inputs = channels;
    if (stage > 1) {
      channels *= 2;
      height = (height + 1) / 2;
      width = (width + 1) / 2;
    }
    const int64_t shortcut = stage > 1 ? inputs : 0;  // the 1x1 convolution of the stage's first block
    const int64_t others = (2 * kBlocksPerStage - 1) * channels * 9;
    forward += height * width * channels * (inputs * 9 + others + shortcut);
  }
  forward += channels * options.classes;
  return 2 * (3 * forward - first);
}

int64_t resnet18_working_bytes(const ResNet18Options& options, torch::DeviceType device, int64_t threads) {
  const int64_t widest = options.width << (kStages - 1);
  const bool own = device == torch::kCPU && options.kernels == Kernels::kAuto &&
                   options.dtype == torch::kFloat32 && widest % Conv3x3Shape::kChannels == 0;
  return own ? conv3x3_bytes({.height = 4, .width = 4, .in = widest, .out = widest}, threads) : 0;
}

}  // namespace lockstep
