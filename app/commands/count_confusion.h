// Counts which classes models take for which.
#pragma once

#include <memory>
#include <span>

#include <lockstep/app/run_files/confusion.h>
#include <lockstep/data/training_data.h>
#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Throws UsageError for data without classes, or with so many that a matrix of them helps nobody.
void check_has_confusion(const TrainingData& data);

// The test rows by their class and by the class with the largest logit, the first of several. Models and
// sources: as of predict() (parallel/training/prediction.h). Throws UsageError for outputs that are not
// logits (rows, classes), and what computing them throws.
Confusion count_confusion(std::span<const Model> models,
                          std::span<const std::shared_ptr<const BatchSource>> sources,
                          const TrainingData& data, Precision precision, ReplicaWorkers& workers,
                          Communicator& communicator);

}  // namespace lockstep
