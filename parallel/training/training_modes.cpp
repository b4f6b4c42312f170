#include <lockstep/parallel/training/training_modes.h>

#include <torch/nn/module.h>

#include <algorithm>

namespace lockstep {

TrainingModes::TrainingModes(torch::nn::Module& module) {
  // Without an owner, since an object may hold its module by value: modules() would ask for the owner of it.
  modes_.emplace_back(std::shared_ptr<torch::nn::Module>(std::shared_ptr<void>(), &module),
                      module.is_training());
  for (const auto& part : module.modules(/*include_self=*/false))
    modes_.emplace_back(part, part->is_training());
}

bool TrainingModes::changed() const {
  return std::any_of(modes_.begin(), modes_.end(),
                     [](const auto& mode) { return mode.first->is_training() != mode.second; });
}

// train() also sets the children, whose turn comes later.
void TrainingModes::restore() const {
  for (const auto& [part, training] : modes_) part->train(training);
}

// All modes first: a part of two modules has its own one only until the first of these is in evaluation mode.
EvaluationMode::EvaluationMode(std::span<torch::nn::Module* const> modules) {
  for (auto* module : modules) modes_.emplace_back(*module);
  for (auto* module : modules) module->eval();
}

EvaluationMode::~EvaluationMode() {
  for (const auto& modes : modes_) modes.restore();
}

}  // namespace lockstep
