// Trainer::evaluate() and Trainer::weights(): with one set of batch-norm statistics on all replicas.
#include <torch/nn/module.h>

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/batch_norm.h>
#include <lockstep/parallel/training/evaluate.h>
#include <lockstep/parallel/training/replica.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {

void Trainer::with_shared_buffers(const std::function<void()>& action) {
  wait_for_steps(0);
  require_held_parameters();
  std::vector<std::unique_ptr<SharedBuffers>> shared(replicas_.size());
  // In the replicas' threads, since the memory belongs to their streams.
  const auto end = [&] { workers_.run([&](int local) { shared[static_cast<size_t>(local)].reset(); }); };
  try {
    workers_.run(*communicator_, [&](int local, Endpoint& endpoint) {
      const auto i = static_cast<size_t>(local);
      shared[i] = std::make_unique<SharedBuffers>(*models_[i].module, endpoint, options_.bn,
                                                  replicas_[i]->rows_trained());
    });
    action();  // waits for the GPUs
    throw_if_aborted();
  } catch (...) {
    try {
      end();
    } catch (const std::exception&) {  // the first error is thrown
    }
    throw_if_aborted();  // the cause, if an aborted collective left numbers that are not finite
    throw;
  }
  end();
}

Evaluation Trainer::evaluate(const EvaluationProgress& progress) {
  Evaluation result;
  with_shared_buffers([&] {
    result = lockstep::evaluate(models_, test_sources_, options_.replica.precision, workers_, *communicator_,
                                progress);
  });
  return result;
}

std::vector<NamedTensor> Trainer::weights(int local) {
  const torch::NoGradGuard no_grad;
  std::vector<NamedTensor> result;
  with_shared_buffers([&] {
    const auto& module = *model(local).module;
    const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
      result.push_back({.name = name,
                        .tensor = torch::empty(tensor.sizes(), tensor.scalar_type()).copy_(tensor.detach())});
    };
    for (const auto& [name, tensor] : distinct_tensors(module)) add(name, tensor);
  });
  return result;
}

}  // namespace lockstep
