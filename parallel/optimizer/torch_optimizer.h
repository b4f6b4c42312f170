// An optimizer of torch::optim that a factory makes, for a Trainer.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/optimizer/optimizer.h>

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

class TorchState;

// Its steps are torch's, one parameter after the other. Each .grad must be a view of its range when step() is
// called, and all parameters be this rank's. It counts on the host, so its steps cannot be captured.
// host_copies() names what torch's optimizers keep: "square_avg.NAME", and their counts as () int64,
// "step.NAME", on the host; or "unstepped.NAME", 1, of a parameter whose state its first step will make. A
// state that has neither is refused.
class TorchOptimizer final : public Optimizer {
 public:
  explicit TorchOptimizer(OptimizerFactory factory);
  ~TorchOptimizer() override;

  // Calls the factory. Throws UsageError for an optimizer that lockstep cannot use: none, LBFGS, one without
  // a learning rate, one that leaves out a parameter, or has another tensor.
  void hold(TrainedParameters trained) override;
  void set_lr(double lr) override;
  void step(const torch::Tensor& scale) override;
  // Throws UsageError for an optimizer that is not of torch::optim.
  void require_known_state() override { tensors(); }
  std::vector<NamedTensor> host_copies(const TensorAllocator* memory) override;
  // Throws WeightsError for one.
  std::vector<NamedTensor> expected(const std::vector<NamedTensor>& state) override;
  void load(const std::vector<NamedTensor>& state, Endpoint& endpoint) override;
  bool count_steps_by_parameter(bool) override { return false; }  // it always does
  std::vector<std::string> lines() const override;

 private:
  // The parameter group of each parameter.
  std::vector<size_t> group_of_params() const;
  std::vector<NamedTensor> tensors();
  // The kind of a parameter's state; null for that of another library's optimizer.
  std::unique_ptr<TorchState> state_of_param(size_t param) const;

  const OptimizerFactory factory_;
  TrainedParameters trained_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;  // null before the first hold()
  std::vector<size_t> groups_;                          // of each parameter
  std::vector<double> lr_factors_;                      // of each group
};

}  // namespace lockstep
