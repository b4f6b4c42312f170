// The chapter's train_batch: one step of data-parallel training, readable from top to bottom. `lockstep
// train` takes its steps with the Trainer; this one is for reading, for `lockstep demo scratch`, and what the
// Trainer's results are held against.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/parallel/replica_workers.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Sums over one replica's shard, on its device: (3) double = {sum of the rows' losses, rows whose class has
// the largest logit, rows whose class is among the five largest}.
using ShardSums = torch::Tensor;

// shards[i] and device_params[i] are replica i's rows and parameters (from get_params: leaves with gradients
// of zeros), on workers.devices()[i]. Each replica computes the sum of its rows' losses and its gradient; the
// gradients are summed over all replicas, parameter by parameter; each replica then takes the same step with
// the rows of the whole batch. Shards may have any number of rows, 0 too, as long as the batch has one: the
// result is that of the whole batch. Returns one ShardSums a replica.
std::vector<ShardSums> train_batch(std::span<const Inputs> shards, std::span<Params> device_params,
                                   const Network& net, double lr, ReplicaWorkers& workers);

// The same for a batch that is in one piece: X (n, 1, 28, 28), y (n).
std::vector<ShardSums> train_batch(const torch::Tensor& X, const torch::Tensor& y,
                                   std::span<Params> device_params, const Network& net, double lr,
                                   ReplicaWorkers& workers);

}  // namespace lockstep
