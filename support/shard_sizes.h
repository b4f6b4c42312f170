// How the rows of a batch are divided among replicas.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// The number of rows of each of `world` replicas: `world` numbers that sum to `rows`. Without weights they
// differ by at most one, and the first ones are larger. With weights a replica gets rows * weight / sum of
// weights; the largest remainders are rounded up (ties: lower rank first). With fewer rows than replicas some
// get 0. Throws UsageError for a world below 1, negative rows, and weights that are negative, not finite, all
// zero, not `world` many, or whose sum is not a normal double.
std::vector<int64_t> shard_sizes(int64_t rows, int world, std::span<const double> weights = {});

}  // namespace lockstep
