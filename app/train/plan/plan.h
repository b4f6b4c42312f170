// The plan of a training run: all values, given or derived, before anything is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/train/plan/dataset.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/recipe.h>
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
  std::vector<MetricKind> metrics;               // of the model, at least one
  std::optional<Initialization> initialization;  // empty: the model's own
  int64_t parameter_count = 0;
  int64_t largest_bucket = 0;  // gradients that are summed at a time, at most
  bool has_batch_norm = false;
  LoadedData data;

  TrainWorld world;        // all processes
  TrainerOptions trainer;  // its devices are those of this process
  int64_t epochs = 0;
  int64_t batch_size = 0;  // global
  bool deterministic = false;
  Kernels kernels = Kernels::kAuto;
  int64_t warmup_epochs = 0;
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;  // of the whole run, a limit applied

  double usual_lr = 0;             // the recipe's rate with this optimizer on these devices
  bool keeps_checkpoints = false;  // this process writes them
  int64_t memory_estimate = 0;     // bytes resident at the peak, of this process

  int local_size() const { return static_cast<int>(trainer.devices.size()); }
  int world_size() const { return world.single_process() ? local_size() : world.layout().world_size(); }
  // Returns true if replicas normalise with different statistics, so that their number changes what is
  // computed.
  bool has_statistics_per_replica() const { return has_batch_norm && trainer.bn != BnPolicy::kSync; }
  // Bytes of gradients that each process sends to the others per step; 0 if it is alone, nullopt with NCCL.
  std::optional<int64_t> wire_bytes() const;

  // For messages.
  std::string replica_device(int rank) const;  // "cpu", or "cpu of process 1"
  std::string device_lists() const;            // "[cpu, cpu]", or "[cpu, cpu] + [cpu]"

  // Returns what the choice of a replica's layers depends on, for models/factory.h.
  ModelSpec spec() const;
};

// Reads the data and builds the model once. Writes nothing. The options have passed check_combinations().
// `data`: the data of another plan with the same data flags and seed, so that they are read and held once.
// `world`: of several processes, after assemble_run(). Throws UsageError for values that make no sense with
// these devices, then what reading the data and building the model throw.
TrainPlan make_train_plan(const TrainFlags& options, std::optional<LoadedData> data = {},
                          const TrainWorld& world = {});

// Throws UsageError as make_train_plan() does, without reading data.
void check_train_values(const TrainFlags& options);

// Returns an estimate of the bytes that one replica needs on such a device for a step of this many rows.
int64_t replica_bytes(const TrainPlan& plan, int64_t rows, torch::DeviceType device);

// Returns an estimate of the host memory, in bytes, of this process's replicas on the CPU, checkpoints and
// compressed sums. Replicas on GPUs need little.
int64_t host_bytes(const TrainPlan& plan);

// Images of each replica in the largest step: a small data set may not fill a batch.
std::vector<int64_t> step_sizes(const TrainPlan& plan);

// The table that a run prints first. A row with more than `width` columns goes on below its value.
std::string describe(const TrainPlan& plan, size_t width = std::string::npos);

// Parses --split's shares, such as "3:1". Throws UsageError.
std::vector<double> parse_shares(const std::string& text);

// The engine's options as far as flags and recipe say them, for any devices. Throws UsageError as
// parse_shares() does.
TrainerOptions trainer_options_of(const TrainFlags& flags, const Recipe& recipe);

}  // namespace lockstep
