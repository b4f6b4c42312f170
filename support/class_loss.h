// The cross-entropy of rows with classes, and the counts of its metrics, by lockstep's kernels for GPUs.
#pragma once

#include <torch/types.h>

namespace lockstep {

// Sums over the rows, on their device: losses () float, with a graph; rows () int64 whose class has the
// largest logit, or is among the five largest.
struct ClassLoss {
  torch::Tensor loss, top1, top5;
};

// Returns true if class_loss() takes these: logits (n, classes) in float32 or bfloat16 and labels (n) int64,
// both on one GPU, in a build with CUDA.
bool class_loss_available(const torch::Tensor& logits, const torch::Tensor& labels);

// The results of torch's cross_entropy_loss() with a sum, of argmax(1) == label, and of fewer than five
// larger logits, to rounding of the loss; the gradient is in the logits' type. A label that is no class ends
// the work of the GPU.
ClassLoss class_loss(const torch::Tensor& logits, const torch::Tensor& labels);

}  // namespace lockstep
