// The chapter's train_batch: one step of data-parallel training, readable from top to bottom. It is for
// reading, for `lockstep demo scratch`, and a reference for the Trainer, with which `lockstep train` trains.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/parallel/replica_workers.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Sums over one replica's shard, on its device: (3) double = {sum of losses, top-1, top-5}, the latter two as
// numbers of rows.
using ShardSums = torch::Tensor;

// shards[i] and device_params[i] are replica i's rows (one input, and a target of classes) and parameters on
// workers.devices()[i]; the parameters come from get_params: leaves with zero gradients. Each replica
// computes the sum of its rows' losses and its gradient. The gradients are summed over all replicas,
// parameter by parameter. Each replica then takes the same step, divided by the rows of the whole batch. A
// shard may have 0 rows; a batch may not (UsageError). The result is that of the whole batch on one device.
// Returns one ShardSums per replica.
std::vector<ShardSums> train_batch(std::span<const Batch> shards, std::span<Params> device_params,
                                   const Network& net, double lr, ReplicaWorkers& workers);

// The same for a whole batch: X (n, 1, 28, 28), y (n). Splits it evenly.
std::vector<ShardSums> train_batch(const torch::Tensor& X, const torch::Tensor& y,
                                   std::span<Params> device_params, const Network& net, double lr,
                                   ReplicaWorkers& workers);

}  // namespace lockstep
