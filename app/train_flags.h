// The flags that say what is trained and how: of `train`, and of every command that trains in order to
// measure.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/app/train.h>

namespace lockstep {

inline constexpr int64_t kMaxEpochs = 1'000'000;
inline constexpr int64_t kMaxRows = int64_t{1} << 31;  // of a data set, of a batch

// --recipe, --model, --data, --limit-train
void add_data_flags(CLI::App& command, TrainOptions& options);

// Those, and --batch-size.
void add_recipe_flags(CLI::App& command, TrainOptions& options);

// --limit-test
void add_limit_test_flag(CLI::App& command, std::optional<int64_t>& rows);

// --seed, --limit-steps, --limit-test
void add_run_flags(CLI::App& command, TrainOptions& options);

// --threads, --split
void add_replica_flags(CLI::App& command, TrainOptions& options);

// --optimizer, --momentum, --nesterov, --weight-decay, --clip-norm, --schedule, --warmup-epochs
void add_update_flags(CLI::App& command, TrainOptions& options);

// --lr, and those.
void add_optimizer_flags(CLI::App& command, TrainOptions& options);

// --precision, --accumulate, --bn, --sync, --bucket-mb, --allreduce, --kernels, --cuda-graph, --in-flight,
// --deterministic, --invariant
void add_engine_flags(CLI::App& command, TrainOptions& options);

}  // namespace lockstep
