// Accuracy on a whole data set, computed on all devices at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Rows that a replica evaluates at a time.
inline constexpr int64_t kEvaluationBlock = 256;

struct Evaluation {
  double loss_sum = 0;  // over all rows
  int64_t top1 = 0;     // rows whose class has the largest logit
  int64_t top5 = 0;     // rows whose class is among the five largest
  int64_t rows = 0;

  double loss() const { return loss_sum / static_cast<double>(rows); }
  double accuracy() const { return static_cast<double>(top1) / static_cast<double>(rows); }
  double top5_accuracy() const { return static_cast<double>(top5) / static_cast<double>(rows); }
};

// Told after each block how many rows the replicas are done with (on GPUs: have queued), by one replica's
// thread at a time, and last by the caller's, with all of them. What it throws ends the evaluation: the
// replicas stop after the block under way, and the caller gets the exception.
using EvaluationProgress = std::function<void(int64_t rows_done, int64_t rows)>;

// The set is cut into blocks of kEvaluationBlock rows, dealt whole to the replicas in turn, and the blocks'
// sums are added in their order: the counts are the same to the last row on any number of devices.
// models[i] (all with the same weights and statistics) and sources[i] are on workers.devices()[i], every
// source holds the whole set. Modules are in evaluation mode meanwhile, and in training mode afterwards.
// Throws UsageError when the set is empty, and what `progress` (which may be empty) throws.
Evaluation evaluate(std::span<const Model> models,
                    std::span<const std::shared_ptr<const BatchSource>> sources, Precision precision,
                    ReplicaWorkers& workers, const EvaluationProgress& progress = {});

// One source a replica, made once per distinct device.
std::vector<std::shared_ptr<const BatchSource>> sources_for(std::span<const torch::Device> devices,
                                                            const SourceFactory& factory);

}  // namespace lockstep
