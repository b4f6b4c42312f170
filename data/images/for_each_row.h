// Work on many rows by several threads.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

// Calls work(row) for all rows, 0 .. rows - 1, in this number of threads, of which each takes the next row.
// Throws what the first row in their order throws, always the same: all rows before it are done, not all
// behind it.
void for_each_row(int64_t rows, int workers, const std::function<void(int64_t row)>& work);

}  // namespace lockstep
