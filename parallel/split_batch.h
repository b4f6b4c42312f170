// The chapter's split_batch: a batch cut into one shard a device.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// How many rows each of `world` replicas gets: always `world` numbers that sum to `rows`, some of them 0 when
// there are fewer rows than replicas. Even shares differ by at most one row, the first ones being larger;
// with weights each share is rows * weight / sum of weights, rounded so that the largest remainders are
// rounded up (ties: lower rank first). Throws UsageError for a world below 1, negative rows, or weights that
// are negative, not finite, all zero, of another count, or whose sum is no normal double.
std::vector<int64_t> shard_sizes(int64_t rows, int world, std::span<const double> weights = {});

// Shard i holds consecutive rows of X (n, ...) and y (n), in order, on devices[i]: a view where the batch is
// already there, else a copy. Throws UsageError when X and y differ in rows.
std::vector<Inputs> split_batch(const torch::Tensor& X, const torch::Tensor& y,
                                std::span<const torch::Device> devices, std::span<const double> weights = {});

}  // namespace lockstep
