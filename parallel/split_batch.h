// The chapter's split_batch: cuts a batch into one shard per device.
#pragma once

#include <c10/core/Device.h>

#include <span>
#include <vector>

#include <lockstep/support/shard_sizes.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Returns one shard per device: consecutive rows of the batch, in order, on devices[i]; shard_sizes() says
// how many. A shard's tensors are views if the batch is already on that device, otherwise copies. Throws as
// shard_sizes() does.
std::vector<Batch> split_batch(const Batch& batch, std::span<const torch::Device> devices,
                               std::span<const double> weights = {});

// The same for the rows of an input X (n, ...) and a target y (n). Throws UsageError when they differ in
// rows.
std::vector<Batch> split_batch(const torch::Tensor& X, const torch::Tensor& y,
                               std::span<const torch::Device> devices, std::span<const double> weights = {});

}  // namespace lockstep
