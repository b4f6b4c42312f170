// What a training run will do, with everything resolved and derived, before it does any of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/app/train/dataset.h>
#include <lockstep/app/train/flags.h>
#include <lockstep/models/factory.h>
#include <lockstep/models/initialize.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/kernels.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct TrainPlan {
  std::string recipe;
  std::string model;
  ModelFactory factory;
  std::optional<Initialization> initialization;  // empty: the model's own
  int64_t parameter_count = 0;
  bool has_batch_norm = false;
  LoadedData data;

  TrainerOptions trainer;
  int64_t epochs = 0;
  int64_t batch_size = 0;  // global
  uint64_t seed = 0;
  bool deterministic = false;
  Kernels kernels = Kernels::kAuto;
  int64_t warmup_epochs = 0;
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;  // of the whole run, a limit applied

  double usual_lr = 0;          // what the recipe takes with this optimizer on these devices
  int64_t memory_estimate = 0;  // bytes resident at the peak

  int world_size() const { return static_cast<int>(trainer.devices.size()); }

  // What a replica's layers are chosen by, for models/factory.h to tell about them.
  ModelSpec spec() const;
};

// Reads the data and builds the model once; writes nothing. `data`: what was read for another plan of the
// same data flags and seed, so that several hold it once. Throws what they throw, and before that UsageError
// for values that make no sense with these devices. The options have passed check_combinations().
TrainPlan make_train_plan(const TrainFlags& options, std::optional<LoadedData> data = {});

// Throws what make_train_plan() would for values that make no sense with these devices, and reads no data.
void check_train_values(const TrainFlags& options);

// Bytes that one replica needs on such a device for a step of so many rows: an estimate.
int64_t replica_bytes(const TrainPlan& plan, int64_t rows, torch::DeviceType device);

// Bytes that its replicas on the host will take: an estimate. On GPUs the host keeps little.
int64_t host_bytes(const TrainPlan& plan);

// The table a run starts with.
std::string describe(const TrainPlan& plan);

// What --split names, such as "3:1": a number for each of `world` replicas. Throws UsageError.
std::vector<double> parse_shares(const std::string& text, int world);

}  // namespace lockstep
