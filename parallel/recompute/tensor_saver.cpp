#include <lockstep/parallel/recompute/tensor_saver.h>

#include <torch/csrc/autograd/engine.h>

#include <utility>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

thread_local TensorSaver* thread_saver = nullptr;  // null: tensors are saved as usual

// Torch asks its engine for hooks; Python's engine gives those of saved_tensors_hooks(). In all else this is
// torch's own engine.
class HookingEngine : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return thread_saver ? thread_saver->hooks() : nullptr;
  }

  static Engine& get() {
    static auto* const engine = new HookingEngine;  // backward may run as long as the process
    return *engine;
  }
};

bool install() {
  using torch::autograd::Engine;
  if (&Engine::get_default_engine() != &Engine::get_base_engine()) {
    throw UsageError("recompute() needs torch's own autograd engine, but this process has another one",
                     "in a process with Python use torch.utils.checkpoint");
  }
  torch::autograd::set_default_engine_stub(&HookingEngine::get);
  return true;
}

}  // namespace

void TensorSaver::prepare() {
  static const bool installed = install();
  static_cast<void>(installed);
}

SavingWith::SavingWith(TensorSaver& saver) : outer_(std::exchange(thread_saver, &saver)) {}

SavingWith::~SavingWith() { thread_saver = outer_; }

}  // namespace lockstep
