// How batch normalisations get the statistics of the whole batch: parallel/ gathers, the layers of models/
// merge.
#pragma once

#include <torch/types.h>

namespace lockstep {

// Between the replicas that share a batch. Each replica has its own one, for its own thread.
class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;

  // Returns the rows of all replicas in the order of ranks, (world, n). own: (n) double, contiguous, on the
  // replica's device. A collective: all replicas call it equally often, with rows of the same sizes. On a GPU
  // the current stream waits for the result. Throws the error that ended a collective.
  virtual torch::Tensor gather(const torch::Tensor& own) = 0;
};

// A module that normalises by batches. While it has an exchange, its statistics in training mode are those of
// the whole batch. In evaluation mode it exchanges nothing.
class WholeBatchLayer {
 public:
  virtual ~WholeBatchLayer() = default;

  // Sets the exchange, null at first. It must outlive the forward and backward passes that begin while it is
  // set. Null: statistics of this replica's rows alone.
  virtual void exchange_statistics(StatisticsExchange* exchange) = 0;
};

}  // namespace lockstep
