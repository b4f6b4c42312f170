// Accuracy on a whole data set, computed on all devices at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <lockstep/parallel/replica_workers.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Rows that a replica evaluates at a time.
inline constexpr int64_t kEvaluationBlock = 256;

struct Evaluation {
  double loss_sum = 0;  // over all rows
  int64_t correct = 0;  // rows whose class has the largest logit
  int64_t rows = 0;

  double loss() const { return loss_sum / static_cast<double>(rows); }
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(rows); }
};

// The set is cut into blocks of kEvaluationBlock rows, dealt whole to the replicas in turn, and the blocks'
// sums are added in their order: the counts are the same to the last row on any number of devices.
// device_params[i] and sources[i] are on workers.devices()[i], every source holds the whole set; throws
// UsageError when it is empty.
Evaluation evaluate(const Network& net, std::span<const Params> device_params,
                    std::span<const std::shared_ptr<const BatchSource>> sources, ReplicaWorkers& workers);

}  // namespace lockstep
