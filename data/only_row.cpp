#include <lockstep/data/only_row.h>

#include <fmt/format.h>

#include <lockstep/support/error.h>

namespace lockstep::detail {

void require_one_row(int64_t rows) {
  if (rows != 1) throw DataError(fmt::format("the data set gives {} rows for one row number", rows));
}

int64_t checked_size(std::optional<size_t> size) {
  if (size) return static_cast<int64_t>(*size);
  throw UsageError("the data set does not know its size", "let its size() return the number of rows");
}

}  // namespace lockstep::detail
