// The parameters and buffers of a Trainer's replicas between two steps, when a user or a fault may have
// changed them.
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <vector>

#include <lockstep/parallel/batch_norm/shared_buffers.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/loss_scale.h>
#include <lockstep/parallel/training/replica.h>
#include <lockstep/parallel/training/replica_state.h>
#include <lockstep/parallel/training/step_history.h>
#include <lockstep/parallel/training/sync_check.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {
namespace {

// For comparisons.
torch::Tensor tensor_of(const LossScaleState& state) {
  return torch::tensor({state.scale, static_cast<double>(state.good_steps),
                        static_cast<double>(state.updates), static_cast<double>(state.steps)},
                       torch::kFloat64);
}

}  // namespace

const Model& Trainer::model(int local) {
  if (local < 0 || local >= local_size()) {
    throw UsageError(fmt::format("this process has no replica {}", local),
                     fmt::format("it has the replicas 0 to {}", local_size() - 1));
  }
  wait_for_steps(0);
  return models_[static_cast<size_t>(local)];
}

// Call it when no step is in flight.
void Trainer::require_held_parameters() {
  workers_.run([this](int local) { replicas_[static_cast<size_t>(local)]->require_held_parameters(); });
}

void Trainer::follow_requires_grad() {
  const auto changed = [](const auto& replica) { return replica->requires_grad_changed(); };
  if (std::none_of(replicas_.begin(), replicas_.end(), changed)) return;
  synchronize();
  workers_.run(*communicator_, [this](int local, Endpoint&) {
    replicas_[static_cast<size_t>(local)]->follow_requires_grad();
  });
}

void Trainer::check_sync() {
  wait_for_steps(0);
  require_held_parameters();
  if (world_size() == 1) return;
  require_same_history(CommonCall::kCheckSync);
  const int process = options_.process_group ? options_.process_group->world().process : 0;
  const auto tensors = [&](size_t i) {
    auto all = replicated_tensors(*models_[i].module, options_.replica.invariant || norm_communicator_);
    for (const auto& [name, average] : replicas_[i]->average()) {
      all.push_back({"the average of " + name, average});
    }
    if (const auto* scale = replicas_[i]->loss_scale())
      all.push_back({"the loss scale", tensor_of(scale->state())});
    return all;
  };
  const auto reports =
      gather_over_ranks([&](size_t i) { return sync_report(tensors(i), workers_.devices()[i], process); });
  require_equal_reports(reports, tensors(0), steps_taken_);
}

// With one set of batch-norm statistics on all replicas, those of options.bn. averaged: and with the average
// of the weights in their place, if there is one.
void Trainer::with_shared_buffers(bool averaged, const std::function<void()>& action) {
  wait_for_steps(0);
  // A parameter that has been frozen since the last step is evaluated as it is.
  if (averaged && options_.ema > 0) follow_requires_grad();
  require_held_parameters();
  std::vector<std::unique_ptr<SharedBuffers>> shared(replicas_.size());
  std::vector<std::unique_ptr<AveragesInPlace>> averages(replicas_.size());
  // In the replicas' threads, since the memory belongs to their streams.
  const auto end = [&] {
    workers_.run([&](int local) {
      averages[static_cast<size_t>(local)].reset();
      shared[static_cast<size_t>(local)].reset();
    });
  };
  try {
    workers_.run(*communicator_, [&](int local, Endpoint& endpoint) {
      const auto i = static_cast<size_t>(local);
      shared[i] = std::make_unique<SharedBuffers>(*models_[i].module, endpoint, options_.bn,
                                                  replicas_[i]->rows_trained());
      if (averaged) averages[i] = replicas_[i]->put_average_in_place();
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

std::vector<NamedTensor> Trainer::weights(int local) {
  const auto heap = heap_memory();
  return copies_of(local, /*averaged=*/false, &heap);
}

std::vector<NamedTensor> Trainer::averaged_weights(int local) {
  const auto heap = heap_memory();
  return copies_of(local, /*averaged=*/true, &heap);
}

// A collective. memory: for the copies; null: none are kept.
std::vector<NamedTensor> Trainer::copies_of(int local, bool averaged, const TensorAllocator* memory) {
  std::vector<NamedTensor> result;
  with_shared_buffers(averaged, [&] {
    if (memory) result = host_copies(distinct_tensors(*model(local).module), *memory);
  });
  return result;
}

}  // namespace lockstep
