// Rows in batches of one size, of which the last may have fewer.
#pragma once

#include <cstdint>

namespace lockstep {

// Returns the number of batches. rows: 0 or more; size: 1 or more.
constexpr int64_t batches_of(int64_t rows, int64_t size) { return rows / size + (rows % size > 0 ? 1 : 0); }

// Returns the rows of the last batch; 0 of no rows.
constexpr int64_t rows_of_last_batch(int64_t rows, int64_t size) {
  return rows == 0 ? 0 : rows - (batches_of(rows, size) - 1) * size;
}

}  // namespace lockstep
