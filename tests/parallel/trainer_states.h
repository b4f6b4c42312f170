// The parts that the tests of Trainer::state() and load() share: states, and what a run has at its end.
#pragma once

#include <torch/utils.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/support/whole_batch.h>

namespace lockstep::testing {

inline constexpr int64_t kRows = 600;  // three blocks of an evaluation

struct Result {
  std::vector<std::vector<NamedTensor>> replicas;  // [local]: parameters, and each replica's own buffers
  std::vector<TrainSums> sums;                     // of each step
  RowSums evaluation;
};

// Adds what the trainer has now: the tensors of each local replica, and an evaluation.
inline void keep_end(Trainer& trainer, Result& result) {
  const torch::NoGradGuard no_grad;
  result.evaluation = trainer.evaluate();
  for (int local = 0; local < trainer.local_size(); ++local) {
    auto& tensors = result.replicas.emplace_back();
    const auto& module = *trainer.model(local).module;
    for (const auto& item : module.named_parameters()) tensors.push_back({item.key(), item.value().clone()});
    for (const auto& item : module.named_buffers()) tensors.push_back({item.key(), item.value().clone()});
  }
}

// Changes a state before it is loaded.
using Change = std::function<void(TrainState&)>;

inline std::unique_ptr<Trainer> new_trainer(const ModelFactory& factory, const TrainerOptions& options) {
  return std::unique_ptr<Trainer>(
      new Trainer(make_trainer(factory, options, std::make_shared<RowSource>(kRows))));
}

// The state of a new trainer after the first `steps` of kBatches.
inline TrainState state_after(int steps, const ModelFactory& factory, const TrainerOptions& options) {
  torch::manual_seed(7);
  auto trainer = make_trainer(factory, options, std::make_shared<RowSource>(kRows));
  for (int step = 0; step < steps; ++step) trainer.step(kBatches[static_cast<size_t>(step)]);
  return trainer.state();
}

}  // namespace lockstep::testing
