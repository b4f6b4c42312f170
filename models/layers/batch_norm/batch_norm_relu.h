// Batch normalisation in training mode, the addition of a residual, and ReLU, fused into one operation that
// reads and writes memory as few times as possible (batch_norm_kernels.h).
#pragma once

#include <torch/types.h>

#include <optional>

#include <lockstep/support/batch_statistics.h>
#include <lockstep/support/cpu/capability.h>

namespace lockstep {

// Counters by which the kernels of a GPU find their last block: zeros before and after each layer. Layers
// that are computed one after another, such as a network's, share one object.
class BatchNormCounters {
 public:
  // Returns at least `count` zeros, int32. They keep their memory as long as it suffices: captured graphs use
  // it. Not for threads at the same time.
  torch::Tensor on(torch::Device device, int64_t count);

 private:
  torch::Tensor zeros_;
};

// A batch normalisation's tensors, each (c) float on the device of its input.
struct FusedBatchNorm {
  torch::Tensor weight;
  torch::Tensor bias;
  torch::Tensor running_mean;  // moves towards the batch's by `momentum`
  torch::Tensor running_var;
  // Bias of the convolution before it; undefined for none. Normalisation removes a bias, so it is not added
  // to x and counts only in running_mean. Its true gradient is 0: .grad stays as it was, and its
  // post-accumulate hooks run.
  torch::Tensor conv_bias = {};
  // Bias of the convolution that made the residual, which is added here instead; undefined for none. Its
  // gradient is that of `bias`: the sum over the same numbers.
  torch::Tensor residual_bias = {};
  // (), int64: becomes one more. Undefined: the caller counts batches.
  torch::Tensor num_batches_tracked = {};
  // dtype of the result and of the residual, if not that of x. With float x and a bfloat16 result a CPU
  // rounds only the result; a GPU rounds x first.
  std::optional<torch::ScalarType> dtype = {};
  double momentum = .1;
  double eps = 1e-5;
  // Statistics of the whole batch, on a CPU: then both passes are collectives, as those of
  // whole_batch_norm().
  StatisticsExchange* exchange = nullptr;
  std::optional<CpuCapability> capability = {};  // on a CPU: kernels for this one, not cpu_capability()'s
  BatchNormCounters* counters = nullptr;         // on a GPU; null: zeros of its own, for a kernel more
};

// Returns true if fused_batch_norm_relu() computes results of this dtype: float or bfloat16, on a GPU in a
// build with CUDA, or on a CPU if `channels` is a multiple of 16.
bool fused_batch_norm_available(torch::Device device, torch::ScalarType dtype, int64_t channels);

// One result for two layers: two tensors of the same memory.
struct TwoUses {
  torch::Tensor first, second;
};

// Returns true if adding a residual's bias here saves passes over memory: on a GPU. On a CPU the convolution
// adds it to sums that it has in registers.
bool fused_batch_norm_adds_residual_bias(torch::Device device);

// Returns relu(batch_norm(x) + residual + residual_bias), (n, c, h, w) in channels_last, in `layer`'s dtype
// even under autocast. residual has the result's shape, dtype and device; undefined for none. Statistics are
// float; the result is rounded once. A torch operation like any other: differentiable in x, residual, weight
// and both biases, on torch's current stream, with the same bits in every run. Updates the running statistics
// and counts the batch before it returns. Throws c10::Error if x has fewer than two values per channel, as
// torch does (with an exchange: none), and for tensors that do not fit each other; with an exchange also as
// merge_statistics().
torch::Tensor fused_batch_norm_relu(const torch::Tensor& x, const FusedBatchNorm& layer,
                                    const torch::Tensor& residual = {});

// The same for a result that two layers read, such as the layers of a residual block and its shortcut. On a
// GPU the operation takes both gradients and adds them while it reads them, with the bits of torch's
// addition; on a CPU both are the same tensor.
TwoUses fused_batch_norm_relu_for_two(const torch::Tensor& x, const FusedBatchNorm& layer,
                                      const torch::Tensor& residual = {});

}  // namespace lockstep
