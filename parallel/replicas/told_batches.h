// The batches that the processes have told each other, until they are compared.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

// A batch as the processes compare it. Each process must have the same.
struct ToldBatch {
  enum Kind : int64_t { kTraining, kEvaluation };

  int64_t kind = kTraining;
  int64_t number = 0;
  int64_t rows = 0;
  uint64_t digest = 0;

  torch::Tensor to_tensor() const;  // (4) int64
};

// On a CPU batches are compared at once. On a GPU that would wait for all that is queued, so they are
// compared where the host waits anyway, or when kMost have come.
class ToldBatches {
 public:
  static constexpr size_t kMost = 256;

  void add(const torch::Tensor& all) { told_.push_back(all); }  // (world, 4) int64, a row of each rank
  bool due() const { return !told_.empty() && (told_.front().is_cpu() || told_.size() >= kMost); }

  // Returns all that were added as (n, world, 4) on the host, in their order, and forgets them; undefined if
  // there are none. Waits for a GPU.
  torch::Tensor take();

 private:
  std::vector<torch::Tensor> told_;
};

// all: of take(). Throws UsageError, with the first two that differ, unless all processes had the same.
void require_same_batches(const torch::Tensor& all);

}  // namespace lockstep
