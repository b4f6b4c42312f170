// A part of the training rows that is held out for validation.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/data/training_data.h>

namespace lockstep {

// Returns true if the row is held out. That depends on the seed, its number and the share alone: on no other
// row, and on no number of replicas or processes. A larger share holds out the same rows and more. In Python,
// with mix64() and GAMMA of batch_order.h:
//   state = mix64(mix64(mix64(seed + GAMMA) + 7) + row)
//   held_out = (mix64(state + GAMMA) >> 11) / 2**53 < share
bool is_held_out(uint64_t seed, int64_t row, double share);

// Rows with these numbers, in this order. numbers: each 0 .. rows.rows - 1.
DataRows subset_of(const DataRows& rows, std::vector<int64_t> numbers);

// Moves the training rows that are held out to data.validation. share: above 0 and below 1. Throws UsageError
// if that leaves no training row or no row to validate with.
void hold_out(TrainingData& data, double share, uint64_t seed);

}  // namespace lockstep
