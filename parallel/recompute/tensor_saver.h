// Hooks for the tensors that operations of a thread save for backward, as saved_tensors_hooks() of Python.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace lockstep {

// Gives hooks to each saved tensor. Calls come in the order of the operations.
class TensorSaver {
 public:
  virtual ~TensorSaver() = default;
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;

  // Prepares torch's autograd, once per process. Throws UsageError if another engine than torch's has been
  // installed there, such as that of Python.
  static void prepare();
};

// While it lives, tensors that this thread saves get hooks of this saver. May be nested; the innermost
// counts. Call TensorSaver::prepare() before.
class SavingWith {
 public:
  explicit SavingWith(TensorSaver& saver);
  ~SavingWith();
  SavingWith(const SavingWith&) = delete;
  SavingWith& operator=(const SavingWith&) = delete;

 private:
  TensorSaver* const outer_;
};

}  // namespace lockstep
