// How a replica runs a model without training it: on fixed blocks of rows, so that no result depends on the
// number of replicas.
#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/training/evaluation.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/parallel/training/training_modes.h>
#include <lockstep/support/batches.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Rows in blocks of at most kEvaluationBlock, whose sizes differ by at most one: a small last block would be
// a shape of its own, for which a GPU has to find and compile its algorithms. Rank r of the world takes the
// blocks r, r + world, ...
struct Blocks {
  int64_t rows = 0;
  int world = 1;

  int64_t count() const { return batches_of(rows, kEvaluationBlock); }
  int64_t most_per_rank() const { return batches_of(count(), world); }
  int64_t begin(int64_t block) const {
    return block * (rows / count()) + std::min(block, rows % count());  // the larger ones come first
  }
  int64_t size(int64_t block) const { return begin(block + 1) - begin(block); }

  // The rows of the blocks of this process's ranks.
  int64_t rows_of(const Communicator& communicator) const;
};

// One replica's blocks. While it lives, the module is in evaluation mode, and the thread computes no
// gradients. Use it in the replica's thread.
class EvaluatedBlocks {
 public:
  // All outlive it. what: "evaluation", for errors.
  EvaluatedBlocks(const Model& model, const BatchSource& source, Precision precision,
                  const Endpoint& endpoint, const char* what);

  // Gathers the rows with these numbers, which are a block, and returns function(rows, the same with inputs
  // in the precision). It draws the numbers of the block, whichever replica computes it. Throws faults of the
  // model and the data as model_errors.h says.
  using Function = std::function<torch::Tensor(const Batch& rows, const Batch& converted)>;
  torch::Tensor compute(int64_t block, std::span<const int64_t> numbers, const Function& function);

  // The block that is computed, as in "rank 1 (cpu): in the evaluation of rows 0 to 255".
  const std::string& place() const { return place_; }

 private:
  const torch::NoGradGuard no_grad_;
  const EvaluationMode mode_;
  const BatchSource& source_;
  const Precision precision_;
  const torch::Device device_;
  const std::string where_;  // the begin of each place
  const int64_t size_;       // of the source
  const std::shared_ptr<const BatchSpec> spec_;
  Batch into_;
  torch::Tensor on_device_;  // (rows of a block), their numbers
  std::string place_;
};

}  // namespace lockstep
