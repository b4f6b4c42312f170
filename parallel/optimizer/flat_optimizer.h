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
// flat_sgd() does. tensors() returns the optimizer's own memory: "momentum_buffer.NAME" of SGD with momentum;
// "exp_avg.NAME", "exp_avg_sq.NAME" and "step" or "step.NAME" of Adam and AdamW.
class FlatOptimizer final : public Optimizer {
 public:
  FlatOptimizer(const OptimizerOptions& options, torch::Device device);

  void hold(TrainedParameters trained) override;
  // On a GPU a changed rate queues a fill per group.
  void set_lr(double lr) override;
  void step(const torch::Tensor& scale) override;
  std::vector<NamedTensor> tensors() override;
  std::vector<NamedTensor> expected(const std::vector<NamedTensor>& state) override;
  void load(const std::vector<NamedTensor>& state, Endpoint& endpoint) override;
  bool count_steps_by_parameter(bool by_parameter) override;
  std::vector<std::string> lines() const override;

 private:
  // Ranges with the same options.
  struct Group {
    GroupOptions options;
    torch::Tensor device_lr = {};  // () double, the rate on the GPU; undefined on a CPU
    std::vector<size_t> ranges = {};
  };
  // The state of a range. Its tensors begin their storages.
  struct Moments {
    torch::Tensor first;   // (n); sgd: the momentum buffer
    torch::Tensor second;  // (n); undefined for sgd
  };
  struct UpdateLists;

  bool is_sgd() const { return options_.kind == OptimizerKind::kSgd; }
  void make_groups();
  void make_state();
  bool counts_alike() const;
  UpdateLists lists_of(const Group& group) const;
  void update_on_gpu_by_sgd(const Group& group, const torch::Tensor& scale);
  void update(const Group& group);
  void update_by_adam(const Group& group, const UpdateLists& lists);

  const OptimizerOptions options_;
  const torch::Device device_;
  TrainedParameters trained_;
  std::vector<Group> groups_;
  std::vector<Moments> moments_;  // of each range; none before the first step, and for sgd without momentum
  torch::Tensor steps_;           // () or (parameters) float, of adam: steps taken
  bool by_parameter_ = false;     // steps_ has one count per parameter
  double lr_ = 0;
};

}  // namespace lockstep
