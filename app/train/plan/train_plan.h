// All values of a training run, given or derived.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/train/plan/dataset.h>
#include <lockstep/app/train/plan/loss_choice.h>
#include <lockstep/app/train/plan/pixel_changes.h>
#include <lockstep/app/train/plan/start.h>
#include <lockstep/models/factory.h>
#include <lockstep/models/initialize.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/kernels.h>
#include <lockstep/support/types.h>

namespace lockstep {

class Program;

struct TrainPlan {
  std::string recipe;
  std::string model;                       // "program" where there is one
  std::shared_ptr<const Program> program;  // null: a model of lockstep
  std::optional<LossChoice> loss;          // of the program
  ModelFactory factory;
  std::vector<MetricKind> metrics;               // of the model; a program that returns its loss has none
  std::optional<Initialization> initialization;  // empty: the model's own
  std::optional<StartWeights> start;             // of a file
  std::vector<std::string> frozen;               // names of parameters
  double label_smoothing = 0;
  std::optional<double> validation_share;  // of the training rows
  std::optional<int64_t> patience;         // epochs without a better validation
  std::vector<double> class_weights;       // empty: none
  std::optional<NetworkFacts> facts;       // where there are one input and classes
  int64_t parameter_count = 0;
  int64_t frozen_count = 0;    // of these numbers, those that are not trained
  int64_t largest_bucket = 0;  // gradients that are summed at a time, at most
  bool has_batch_norm = false;
  LoadedData data;      // as this network trains on it
  LoadedData as_read;   // for other plans
  PixelChanges pixels;  // of images

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
  // A program's, as measured: bytes per row that a step holds at most, beside weights and gradients.
  int64_t measured_row_bytes = 0;
  int64_t largest_neighbours = 0;   // gradients of two buckets in a row, at most
  bool keeps_bf16_weights = false;  // each replica, beside the fp32 masters

  int local_size() const { return static_cast<int>(trainer.devices.size()); }
  int world_size() const { return world.single_process() ? local_size() : world.layout().world_size(); }
  // Returns true if replicas normalise with different statistics, so that their number changes what is
  // computed.
  bool has_statistics_per_replica() const { return has_batch_norm && trainer.bn != BnPolicy::kSync; }
  int64_t element_bytes() const;   // of a weight, and of its gradient
  int64_t gradient_bytes() const;  // of all gradients, as of all trained weights
  // Bytes of gradients that each process sends to the others per step; 0 if it is alone, nullopt with NCCL.
  std::optional<int64_t> wire_bytes() const;

  // Rows of each replica in the largest step: a small data set may not fill a batch.
  std::vector<int64_t> step_sizes() const;

  // For messages.
  std::string replica_device(int rank) const;  // "cpu", or "cpu of process 1"
  std::string device_lists() const;            // "[cpu, cpu]", or "[cpu, cpu] + [cpu]"

  // Returns true if the model computes in fp32 on such a device whatever the precision of its layers.
  bool stays_in_fp32(torch::DeviceType device) const;

  // Returns what the choice of a replica's layers depends on, for models/factory.h. Not of a program.
  ModelSpec spec() const;
};

}  // namespace lockstep
