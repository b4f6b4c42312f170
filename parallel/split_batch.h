// The chapter's split_batch: cuts a batch into one shard per device.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// The number of rows of each of `world` replicas: `world` numbers that sum to `rows`. Without weights they
// differ by at most one, and the first ones are larger. With weights a replica gets rows * weight / sum of
// weights; the largest remainders are rounded up (ties: lower rank first). With fewer rows than replicas some
// get 0. Throws UsageError for a world below 1, negative rows, and weights that are negative, not finite, all
// zero, not `world` many, or whose sum is not a normal double.
std::vector<int64_t> shard_sizes(int64_t rows, int world, std::span<const double> weights = {});

// Returns one shard per device: consecutive rows of X (n, ...) and y (n), in order, on devices[i];
// shard_sizes() says how many. A shard is a view if the batch is already on that device, otherwise a copy.
// Throws UsageError when X and y differ in rows, and as shard_sizes() does.
std::vector<Inputs> split_batch(const torch::Tensor& X, const torch::Tensor& y,
                                std::span<const torch::Device> devices, std::span<const double> weights = {});

}  // namespace lockstep
