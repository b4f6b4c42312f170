// The chapter's split_batch: cuts a batch into one shard per device.
#pragma once

#include <c10/core/Device.h>

#include <span>
#include <vector>

#include <lockstep/support/shard_sizes.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Returns one shard per device: consecutive rows of X (n, ...) and y (n), in order, on devices[i];
// shard_sizes() says how many. A shard is a view if the batch is already on that device, otherwise a copy.
// Throws UsageError when X and y differ in rows, and as shard_sizes() does.
std::vector<Inputs> split_batch(const torch::Tensor& X, const torch::Tensor& y,
                                std::span<const torch::Device> devices, std::span<const double> weights = {});

}  // namespace lockstep
