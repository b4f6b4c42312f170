// The result of an evaluation, and how its progress is told.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

struct Evaluation {
  double loss_sum = 0;  // over all rows
  int64_t top1 = 0;     // rows whose class has the largest logit
  int64_t top5 = 0;     // rows whose class is among the five largest
  int64_t rows = 0;

  double loss() const { return loss_sum / static_cast<double>(rows); }
  double accuracy() const { return static_cast<double>(top1) / static_cast<double>(rows); }
  double top5_accuracy() const { return static_cast<double>(top5) / static_cast<double>(rows); }
};

// Callback after each block, with the number of rows that this process's replicas have evaluated (on GPUs:
// queued), of those that they will; in one process that is the whole set. The replicas' threads call it, one
// at a time; the caller's thread makes the last call, with all rows. A process without a block makes no call.
// When it throws, the replicas of this process stop after their current block, and evaluate() throws the
// exception in this process and PeerError in the others (after the last call these have their result). All
// processes can evaluate again.
using EvaluationProgress = std::function<void(int64_t rows_done, int64_t rows)>;

}  // namespace lockstep
