// The order in which an epoch visits the rows of a data set.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// Returns a permutation of 0 .. rows-1 that depends on (seed, epoch) only, not on the number of replicas,
// threads or devices. epoch counts from 0. Throws UsageError when epoch or rows is negative, or rows exceeds
// 2^32.
//
// In Python, modulo 2^64:
//   GAMMA = 0x9E3779B97F4A7C15
//   def mix64(z):
//       z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9
//       z = (z ^ z >> 27) * 0x94D049BB133111EB
//       return z ^ z >> 31
//   state = mix64(mix64(seed + GAMMA) + epoch)
//   order = list(range(rows))
//   for i in range(rows - 1, 0, -1):
//       state += GAMMA
//       j = (mix64(state) >> 32) * (i + 1) >> 32
//       order[i], order[j] = order[j], order[i]
std::vector<int64_t> batch_order(uint64_t seed, int64_t epoch, int64_t rows);

}  // namespace lockstep
