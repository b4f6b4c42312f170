// All that the next step of a Trainer depends on. A Trainer that loads the state of another one goes on as
// that one would have: Trainer::state() and Trainer::load() (parallel/trainer.h). data/train_checkpoint.h
// keeps it in files.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/support/lr_state.h>
#include <lockstep/support/types.h>

namespace lockstep {

// The state that one replica has for itself. All tensors are on the host.
struct ReplicaState {
  std::vector<NamedTensor> buffers;  // of its module, such as batch-norm statistics of its own rows
  int64_t rows_trained = 0;          // weighs the statistics with BnPolicy::kAverage
  torch::Tensor host_generator;      // (n) uint8: torch's default one of its process; no step draws from it
  torch::Tensor device_generator;    // (n) uint8: that of its GPU; (0) on a CPU
};

// The factor on the loss of the next step with Precision::kFp16, and what it follows from.
struct LossScaleState {
  double scale = 65536;
  int64_t good_steps = 0;  // in a row, since the last one that was skipped or the last growth
  int64_t updates = 0;     // steps that were not skipped; 0: nothing has been trained yet
  int64_t steps = 0;       // taken with a scale: the updates and the skipped ones

  bool operator==(const LossScaleState&) const = default;
};

// All tensors are contiguous copies on the host.
struct TrainState {
  int64_t steps = 0;                         // taken
  LrState lr;                                // what the learning rate depends on beside them
  std::optional<LossScaleState> loss_scale;  // with Precision::kFp16; else empty
  std::vector<NamedTensor> model;      // as Trainer::weights() returns it: fp32 masters, fp64 with kFp64
  std::vector<NamedTensor> optimizer;  // "momentum_buffer.NAME"; "exp_avg.NAME", "exp_avg_sq.NAME", and
                                       // "step" or "step.NAME" (Trainer::model()); of a factory's
                                       // optimizer torch's names, "square_avg.NAME", or
                                       // "unstepped.NAME" before a parameter's first step
  std::vector<NamedTensor> average;    // of the trained parameters (TrainerOptions::ema), by their names;
                                       // empty without one, and before the first update
  std::vector<ReplicaState> replicas;  // one per rank
  std::vector<double> split;           // the shares that auto_split has found, one per rank; else empty
};

}  // namespace lockstep
