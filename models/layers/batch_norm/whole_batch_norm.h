// Batch normalisation in training mode with the statistics of the whole batch, whose rows several replicas
// share. In torch's operations, for any device and floating-point dtype.
//
// Forward the replicas exchange counts, means and sums of squares, backward the sums of dy and of dy x_hat,
// which every row's gradient needs (merge_statistics.h). The gradients of weight and bias stay sums over this
// replica's rows: gradient synchronisation adds them.
#pragma once

#include <torch/types.h>

#include <lockstep/support/batch_statistics.h>

namespace lockstep {

// The tensors of a layer, each (c) on the device of its input.
struct WholeBatchNorm {
  torch::Tensor weight = {};        // undefined: 1
  torch::Tensor bias = {};          // undefined: 0
  torch::Tensor running_mean = {};  // moves towards the batch's by `momentum`; undefined: none is kept
  torch::Tensor running_var = {};   // unbiased by the rows of all replicas
  double momentum = .1;
  double eps = 1e-5;
};

// Returns the normalised x, (n, c, ...) in its dtype and memory format. n may be 0, as long as other replicas
// have rows. Differentiable once, in x, weight and bias. A collective of all replicas, and so is the backward
// pass if x requires a gradient; `exchange` must outlive it. Updates the running statistics before it
// returns, with the same bits on all replicas of one device type. Throws UsageError if all replicas together
// have fewer than two values per channel, and what exchange.gather() throws.
torch::Tensor whole_batch_norm(const torch::Tensor& x, const WholeBatchNorm& layer,
                               StatisticsExchange& exchange);

}  // namespace lockstep
