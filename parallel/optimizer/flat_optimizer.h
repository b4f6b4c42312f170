// SGD, Adam and AdamW as fused updates of flat memory. A step is one update per group, of all its ranges. SGD
// on a GPU uses lockstep's kernel (flat_sgd.h), one per range for everything; all others use torch's fused
// kernels.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include <lockstep/parallel/optimizer/optimizer.h>

namespace lockstep {

// Computes the updates of torch::optim::SGD, Adam and AdamW. On a GPU everything that changes from step to
// step is read from device memory, so a step can be captured into a graph and replayed. step() throws as
// flat_sgd() does. host_copies() are "momentum_buffer.NAME" of SGD with momentum; "exp_avg.NAME",
// "exp_avg_sq.NAME" and "step" or "step.NAME" of Adam and AdamW. Of these it keeps what this rank owns, and
// the steps.
class FlatOptimizer final : public Optimizer {
 public:
  FlatOptimizer(const OptimizerOptions& options, torch::Device device);

  void hold(TrainedParameters trained) override;
  // On a GPU a changed rate queues a fill per group.
  void set_lr(double lr) override;
  void step(const torch::Tensor& scale) override;
  std::vector<NamedTensor> host_copies(const TensorAllocator* memory) override;
  std::vector<NamedTensor> expected(const std::vector<NamedTensor>& state) override;
  void load(const std::vector<NamedTensor>& state, Endpoint& endpoint) override;
  bool count_steps_by_parameter(bool by_parameter) override;
  std::vector<std::string> lines() const override;

 private:
  // Ranges with the same options.
  struct Group {
    GroupOptions options;
    torch::Tensor device_lr = {};                  // () double, the rate on the GPU; undefined on a CPU
    std::vector<std::vector<size_t>> ranges = {};  // of each bucket
  };
  struct UpdateLists;

  bool is_sgd() const { return options_.kind == OptimizerKind::kSgd; }
  bool keeps_moments() const { return !is_sgd() || options_.momentum != 0; }
  void make_groups();
  void make_state();
  bool counts_alike() const;
  std::vector<NamedTensor> steps() const;
  UpdateLists lists_of(const Group& group, size_t bucket) const;
  void update(const Group& group, size_t bucket, const torch::Tensor& scale);
  void update_on_gpu_by_sgd(const Group& group, size_t bucket, const torch::Tensor& scale);
  void update_by_torch(const Group& group, size_t bucket);
  void update_by_adam(const Group& group, const UpdateLists& lists);

  const OptimizerOptions options_;
  const torch::Device device_;
  TrainedParameters trained_;
  std::vector<Group> groups_;
  // The momentum buffer of sgd, if it has momentum; exp_avg and exp_avg_sq of adam. None before the first
  // step.
  std::vector<PartBuffer> moments_;
  torch::Tensor steps_;        // () or (parameters) float, of adam: steps taken
  bool by_parameter_ = false;  // steps_ has one count per parameter
  double lr_ = 0;
};

}  // namespace lockstep
