#include <lockstep/parallel/training/step_history.h>

#include <bit>

namespace lockstep {

void StepHistory::add(std::span<const int64_t> rows, int64_t epoch, double lr) {
  rows_.add_key(rows.size());
  rows_.add_key(static_cast<uint64_t>(epoch));
  for (const auto row : rows) rows_.add_key(static_cast<uint64_t>(row));
  rates_.add_key(std::bit_cast<uint64_t>(lr));
}

}  // namespace lockstep
