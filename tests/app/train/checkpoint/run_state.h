// A state of a training run that tests write and read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include <lockstep/app/train/checkpoint/contents.h>
#include <lockstep/app/train/checkpoint/run_folder.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/app/run_files/classified.h>

namespace lockstep::testing {

inline RunState state_of(int64_t step) {
  RunState state;
  state.trainer.steps = step;
  state.trainer.model = {{"w", torch::full({3}, static_cast<double>(step), torch::kFloat32)}};
  state.trainer.optimizer = {{"momentum_buffer.w", torch::full({3}, .5)}, {"step", torch::tensor(2.f)}};
  for (int rank = 0; rank < 3; ++rank) {
    state.trainer.replicas.push_back({.buffers = {{"bn.mean", torch::full({2}, rank)}},
                                      .rows_trained = 10 + rank,
                                      .host_generator = torch::full({5}, rank, torch::kUInt8),
                                      .device_generator = torch::empty({0}, torch::kUInt8)});
  }
  state.trainer.split = {.5, .25, .25};
  state.trainer.lr = {.factor = 1. / 3, .best = .7, .bad_losses = 2, .fixed = std::nullopt};
  state.position = {
      .epoch = 2, .step = 1, .epoch_seconds = 1.5, .seconds = 2.5, .lr = .1, .accuracy = {.5, .75}};
  state.position.left_out = {{3, 4}, {6, 6}};
  state.position.epoch_skipped = 3;
  state.position.recorded_skipped = 1;
  state.position.epoch_sums = classified(1. / 3, 6, 4, 5);
  state.plan = {{"model", "lenet"}, {"batch_size", 64}, {"lr", .1}};
  state.environment = {{"instructions", "avx2"}};
  state.file_bytes = {{"metrics.csv", 99}, {"metrics.jsonl", int64_t{1} << 40}};
  return state;
}

// A run with checkpoints of these steps.
inline RunFolder run_with(const std::filesystem::path& path, const std::vector<int64_t>& steps) {
  const RunFolder run(path);
  run.create();
  for (const auto step : steps) write_checkpoint(run.checkpoint(step), to_checkpoint(state_of(step)));
  return run;
}

}  // namespace lockstep::testing
