#include <lockstep/data/batch_order.h>

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include <lockstep/support/error.h>
#include <lockstep/support/split_mix64.h>

namespace lockstep {

std::vector<int64_t> batch_order(uint64_t seed, int64_t epoch, int64_t rows) {
  constexpr int64_t kMaxRows = int64_t{1} << 32;  // a draw has 32 bits
  if (epoch < 0) throw UsageError(fmt::format("epoch {} has no order, epochs count from 0", epoch));
  if (rows < 0 || rows > kMaxRows) {
    throw UsageError(fmt::format("{} rows cannot be put in order, 0 to {} can", rows, kMaxRows));
  }
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), int64_t{0});
  SplitMix64 random(seed, {static_cast<uint64_t>(epoch)});
  for (size_t i = order.size(); i-- > 1;) {  // Fisher-Yates, from the last place down
    std::swap(order[i], order[random.below(i + 1)]);
  }
  return order;
}

}  // namespace lockstep
