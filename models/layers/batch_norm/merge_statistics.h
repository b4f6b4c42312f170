// Statistics and sums of the whole batch, from those of the replicas that share it. All numbers are double; c
// is the number of channels.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include <lockstep/support/batch_statistics.h>

namespace lockstep {

// The number of a channel's values, their mean and sum of squares about the mean.
struct BatchStatistics {
  torch::Tensor count;    // ()
  torch::Tensor mean;     // (c)
  torch::Tensor squares;  // (c)
};

// Returns the statistics of all replicas' values. A collective; each replica gives those of its `count`
// values per channel, (c) on its device, zeros for no values. They are merged in the order of ranks (Chan,
// Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979), with
// the same bits on all replicas of one device type. Throws UsageError if there are fewer than two values per
// channel, and what exchange.gather() throws.
BatchStatistics merge_statistics(int64_t count, const torch::Tensor& mean, const torch::Tensor& squares,
                                 StatisticsExchange& exchange);

// Moves running statistics, (c) each of any dtype or both undefined, towards the batch's by `momentum`. The
// variance is unbiased. All replicas write the same bits.
void follow_statistics(const torch::Tensor& running_mean, const torch::Tensor& running_var, double momentum,
                       const BatchStatistics& all);

// Returns the sum over all replicas, (n), added in the order of ranks. A collective. own: (n)
torch::Tensor sum_over_replicas(const torch::Tensor& own, StatisticsExchange& exchange);

}  // namespace lockstep
