#include <lockstep/data/dataset.h>

#include <fmt/format.h>

#include <lockstep/support/error.h>

namespace lockstep {

ImageSet first_rows(const ImageSet& set, int64_t rows) {
  if (rows < 1 || rows > set.size()) {
    throw UsageError(fmt::format("{} rows were asked for, the data set has 1 to {}", rows, set.size()));
  }
  return {set.images.narrow(0, 0, rows), set.labels.narrow(0, 0, rows)};
}

}  // namespace lockstep
