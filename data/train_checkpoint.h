// A Trainer's state in the files of a checkpoint.
//
//   model.safetensors      weights and batch-norm statistics, by the module's names
//   optimizer.safetensors  momentum, moments
//   average.safetensors    the average of the trained parameters, if there is one
//   replicas.safetensors   RANK.buffers.NAME, RANK.rows_trained, RANK.host_generator, RANK.device_generator
//   state.json             {"steps": ..., "split": [...], "lr": {"factor": ..., "best": ..., ...}}; in fp16
//                          also "loss_scale": {"scale": ..., "good_steps": ..., "updates": ..., "steps": ...}
//
//   write_checkpoint("run/epoch-3", to_checkpoint(trainer.state()));            // in the process of rank 0
//   trainer.load(read_train_state(read_checkpoint("run/epoch-3")));
#pragma once

#include <lockstep/data/checkpoint.h>
#include <lockstep/support/train_state.h>

namespace lockstep {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kAverageFile = "average.safetensors";
inline constexpr const char* kStateFile = "state.json";

// Throws OutputError that names a tensor which the format cannot hold (safetensors.h), such as one of
// complex128. To find it before hours of work call it with the state before the first step.
Checkpoint to_checkpoint(TrainState state);

// The inverse. Other files, and other fields of state.json, are the caller's. Throws WeightsError if the
// files are not those of a Trainer's state.
TrainState read_train_state(Checkpoint checkpoint);

}  // namespace lockstep
