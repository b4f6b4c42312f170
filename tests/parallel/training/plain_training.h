// A model trained by stock torch in double, on whole batches in the calling thread: what a Trainer is
// compared with where torch's optimizers decide.
#pragma once

#include <ATen/Parallel.h>
#include <torch/nn/module.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/trainer_options.h>
#include <lockstep/support/module_tensors.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/support/whole_batch.h>

namespace lockstep::testing {

// A way to train, for a Trainer and for stock torch.
struct TrainingCase {
  std::string name;
  OptimizerOptions optimizer = {};
  double lr = .2;
  double clip_norm = 0;
  std::function<void(TrainerOptions&)> change = [](auto&) {};  // of the Trainer alone

  TrainerOptions options(int world, Precision precision = Precision::kFp32) const {
    auto result = options_for(world);
    result.lr.lr = lr;
    result.replica.optimizer = optimizer;
    result.replica.clip_norm = clip_norm;
    result.replica.precision = precision;
    change(result);
    return result;
  }
};

class PlainTraining {
 public:
  PlainTraining(const ModelFactory& factory, const TrainingCase& wanted)
      : model_(factory()), clip_norm_(wanted.clip_norm) {
    at::set_num_threads(1);
    model_.module->to(torch::kFloat64);
    if (wanted.optimizer.factory) {
      optimizer_ = wanted.optimizer.factory(model_.module->parameters());
      return;
    }
    switch (wanted.optimizer.kind) {
      case OptimizerKind::kSgd:
        make<torch::optim::SGD>(wanted, torch::optim::SGDOptions(wanted.lr)
                                            .momentum(wanted.optimizer.momentum)
                                            .nesterov(wanted.optimizer.nesterov));
        break;
      case OptimizerKind::kAdam:
        make<torch::optim::Adam>(wanted, torch::optim::AdamOptions(wanted.lr));
        break;
      case OptimizerKind::kAdamW:
        make<torch::optim::AdamW>(wanted, torch::optim::AdamWOptions(wanted.lr));
        break;
    }
  }

  void step(const Batch& rows) {
    optimizer_->zero_grad();
    mean_loss(rows).backward();
    if (clip_norm_ > 0) torch::nn::utils::clip_grad_norm_(parameters(), clip_norm_);
    optimizer_->step();
  }

  // The mean over all rows, with the modules in evaluation mode.
  double evaluate(const Batch& rows) {
    const torch::NoGradGuard no_grad;
    model_.module->eval();
    const double loss = mean_loss(rows).item<double>();
    model_.module->train();
    return loss;
  }

  torch::nn::Module& module() { return *model_.module; }

 private:
  torch::Tensor mean_loss(const Batch& given) {
    const auto rows = in_precision(given, Precision::kFp64);
    const auto sum = model_.loss_sum(rows).loss;
    return model_.weight ? sum / model_.weight(rows) : sum / rows.rows();
  }

  // Tied ones once. LibTorch's parameters() has them twice.
  std::vector<torch::Tensor> parameters() {
    std::vector<torch::Tensor> once;
    for (const auto& item : distinct_parameters(*model_.module)) once.push_back(item.tensor);
    return once;
  }

  // Each parameter is a group of torch's.
  template <class TorchOptimizer, class TorchOptions>
  void make(const TrainingCase& wanted, const TorchOptions& options) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (const auto& [name, param] : distinct_parameters(*model_.module)) {
      const auto group = wanted.optimizer.group ? wanted.optimizer.group(name, param) : GroupOptions();
      auto own = options;
      own.lr(wanted.lr * group.lr_factor);
      own.weight_decay(group.weight_decay.value_or(wanted.optimizer.weight_decay));
      groups.emplace_back(std::vector{param}, std::make_unique<TorchOptions>(own));
    }
    optimizer_ = std::make_unique<TorchOptimizer>(groups, options);
  }

  Model model_;
  const double clip_norm_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace lockstep::testing
