// The optimizer of one replica. A step is one fused update of a flat buffer of all parameters. SGD on a GPU
// uses lockstep's kernel (flat_sgd.h), one for everything; SGD on a CPU and AdamW use torch's fused kernels.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include <lockstep/parallel/optimizer/optimizer_options.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Computes the updates of torch::optim::SGD and AdamW. Not thread-safe. On a GPU everything that changes from
// step to step is read from device memory, so a step can be captured into a graph and replayed.
class FlatOptimizer {
 public:
  // device: the device of the parameters and gradients.
  FlatOptimizer(const OptimizerOptions& options, torch::Device device);

  // Sets the learning rate of the next steps. On a GPU a changed rate queues a fill on the current stream.
  void set_lr(double lr);

  // From now on each step also writes the parameters, rounded, to `weights` (n) bfloat16 on the same device.
  void keep_bf16_weights(torch::Tensor weights) { bf16_weights_ = std::move(weights); }

  // One step. params and grads: (n) of one floating-point dtype. scale: () of that dtype, a factor on the
  // gradients; undefined: 1. Leaves the gradients zero for the next backward pass. On a GPU the work is
  // queued on the current stream. Throws as flat_sgd() does.
  void step(torch::Tensor params, torch::Tensor grads, const torch::Tensor& scale = {});

  // Returns what the steps keep from one to the next, by torch's names: "momentum_buffer" (n) of SGD with
  // momentum; "exp_avg" (n), "exp_avg_sq" (n) and "step" of AdamW, () or (parts). params: as for step().
  // These are the optimizer's own tensors: writing to them sets its state.
  std::vector<NamedTensor> kept(const torch::Tensor& params);

  // Has AdamW count the steps of each part of the buffers alone, for parts that were not trained from the
  // same step on. offsets: of flat_layout(), where each part begins; the last one lies first. Empty: one
  // count for all, the largest. Parts take over the count that they had together.
  // Returns whether the counts have moved: graphs that were captured count elsewhere.
  bool count_steps_by_part(std::vector<int64_t> offsets);
  // Returns true if all parts have the same count. Waits for a GPU.
  bool counts_alike() const;

  // Begins anew, as a new optimizer: the next params may be others.
  void forget();

 private:
  void make_kept(const torch::Tensor& params);
  void sgd(torch::Tensor& params, torch::Tensor& grads);
  void sgd_on_gpu(torch::Tensor& params, torch::Tensor& grads, const torch::Tensor& scale);
  void adamw(torch::Tensor& params, torch::Tensor& grads);

  const OptimizerOptions options_;
  const torch::Device device_;
  double lr_ = 0;
  torch::Tensor bf16_weights_;   // (n) bfloat16; undefined: none
  torch::Tensor device_lr_;      // () double, the learning rate on the GPU; undefined on a CPU
  torch::Tensor first_moment_;   // (n); sgd: the momentum buffer, undefined without momentum
  torch::Tensor second_moment_;  // (n), adamw
  torch::Tensor steps_;          // () or (parts) float, adamw: steps taken
  std::vector<int64_t> parts_;   // offsets; empty: steps_ is ()
};

}  // namespace lockstep
