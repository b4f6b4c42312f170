// The parameters of a Trainer's replicas between two steps, when a user or a fault may have changed them.
#include <torch/nn/module.h>

#include <algorithm>

#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/replica.h>
#include <lockstep/parallel/training/sync_check.h>

namespace lockstep {

const Model& Trainer::model(int local) {
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
  const int process = options_.process_group ? options_.process_group->world().process : 0;
  const auto tensors = [&](size_t i) {
    return replicated_tensors(*models_[i].module, options_.replica.invariant || norm_communicator_);
  };
  const auto reports =
      gather_over_ranks([&](size_t i) { return sync_report(tensors(i), workers_.devices()[i], process); });
  require_equal_reports(reports, tensors(0), steps_taken_);
}

}  // namespace lockstep
