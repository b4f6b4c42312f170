// What the files of a training run's checkpoint hold.
//
//   model.safetensors      weights and batch-norm statistics, as of `train --save`
//   optimizer.safetensors  momentum, moments
//   replicas.safetensors   RANK.buffers.NAME, RANK.rows_trained, RANK.host_generator, RANK.device_generator
//   state.json             steps, shares of the batch, progress, plan, versions
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include <lockstep/app/run_files/run_metrics.h>
#include <lockstep/app/train/progress.h>
#include <lockstep/data/checkpoint.h>
#include <lockstep/parallel/train_state.h>

namespace lockstep {

struct RunState {
  TrainState trainer;
  TrainProgress progress;
  nlohmann::ordered_json plan = {};         // plan_fields() (app/train/fields.h)
  nlohmann::ordered_json environment = {};  // environment_json() (app/report/environment.h)
  FileSizes file_bytes = {};                // of the run folder's metrics, up to here
};

Checkpoint to_checkpoint(RunState state);

// The inverse. Throws WeightsError if the files are not those of a training run.
RunState read_state(Checkpoint checkpoint);

}  // namespace lockstep
