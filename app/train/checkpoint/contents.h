// The contents of a training run's checkpoint: the files of data/train_checkpoint.h, where model.safetensors
// is as of `train --save`, and state.json also has the progress, the plan and versions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/app/run_files/run_metrics.h>
#include <lockstep/app/train/progress/run_position.h>
#include <lockstep/data/checkpoint.h>
#include <lockstep/support/train_state.h>

namespace lockstep {

struct RunState {
  TrainState trainer;
  RunPosition position;
  nlohmann::ordered_json plan = {};         // plan_fields() (app/train/settings/settings.h)
  nlohmann::ordered_json environment = {};  // environment_json() (app/machine/environment.h)
  FileSizes file_bytes = {};                // of the run folder's metrics, up to here
  // config_text() (app/train/config/config_text.h) with the settings that kKept has, of the run as it wrote
  // this.
  std::string config = {};
};

Checkpoint to_checkpoint(RunState state);

// Returns false if a weight, its average or a number of the optimizer is NaN or infinite.
bool is_finite(const TrainState& state);

// Returns the weights with which the run was evaluated: with --ema their average. Throws WeightsError for an
// average of something else: a name that the model does not have, another shape or dtype.
std::vector<NamedTensor> evaluated_weights(TrainState state);

// Returns true if another program that uses the library has written it: it has no plan.
bool is_of_program(const Checkpoint& checkpoint);

// The inverse of to_checkpoint(). Throws WeightsError if the files are not those of a training run.
RunState read_state(Checkpoint checkpoint);

}  // namespace lockstep
