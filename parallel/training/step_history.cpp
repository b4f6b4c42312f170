#include <lockstep/parallel/training/step_history.h>

#include <bit>

#include <lockstep/support/split_mix64.h>

namespace lockstep {
namespace {

void add_number(uint64_t& digest, uint64_t number) { digest = SplitMix64(digest ^ number).next(); }

}  // namespace

void StepHistory::add(std::span<const int64_t> rows, int64_t epoch, double lr) {
  add_number(rows_, rows.size());
  add_number(rows_, static_cast<uint64_t>(epoch));
  for (const auto row : rows) add_number(rows_, static_cast<uint64_t>(row));
  add_number(rates_, std::bit_cast<uint64_t>(lr));
}

}  // namespace lockstep
