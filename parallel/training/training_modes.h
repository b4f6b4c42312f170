// The modes of a model's parts, training or evaluation. A user may have set some parts to eval() alone, such
// as batch norms whose averages stay as they are.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace lockstep {

class TrainingModes {
 public:
  TrainingModes() = default;  // of nothing

  // Remembers the mode of the module, which outlives it, and of all its parts.
  explicit TrainingModes(torch::nn::Module& module);

  // Returns true if one has another mode now.
  bool changed() const;

  // Gives each its mode again.
  void restore() const;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;  // parents before their children
};

// All parts of some modules, which may share parts, are in evaluation mode while it lives, and then in their
// own mode again, also after an error.
class EvaluationMode {
 public:
  explicit EvaluationMode(std::span<torch::nn::Module* const> modules);
  explicit EvaluationMode(torch::nn::Module& module) : EvaluationMode(std::array{&module}) {}
  ~EvaluationMode();
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<TrainingModes> modes_;
};

}  // namespace lockstep
