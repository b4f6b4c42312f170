#include <lockstep/support/shard_sizes.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

double checked_sum(std::span<const double> weights, int world) {
  if (weights.size() != static_cast<size_t>(world)) {
    const auto given = counted(static_cast<int64_t>(weights.size()), "share");
    throw UsageError(fmt::format("{} for {}", given, counted(world, "replica")),
                     "give one share per replica");
  }
  for (const double weight : weights) {
    if (std::isfinite(weight) && weight >= 0) continue;
    throw UsageError(fmt::format("a replica's share is {}", weight), "shares are finite and not negative");
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (sum == 0) throw UsageError("all shares are 0", "at least one replica needs rows");
  // A sum that overflows, or is so small that it has lost digits, has no meaningful shares.
  if (!std::isnormal(sum)) {
    throw UsageError(fmt::format("the shares sum to {}", sum), "use shares such as 3 and 1");
  }
  return sum;
}

// Largest remainder method (Hamilton's apportionment).
std::vector<int64_t> weighted_sizes(int64_t rows, std::span<const double> weights, double sum) {
  std::vector<int64_t> sizes;
  std::vector<double> remainders;
  for (const double weight : weights) {
    const double share = static_cast<double>(rows) * (weight / sum);
    sizes.push_back(static_cast<int64_t>(share));
    remainders.push_back(share - std::floor(share));
  }
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  auto left = rows - std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  for (size_t i = 0; left > 0; ++i, --left) ++sizes[order[i]];
  return sizes;
}

}  // namespace

std::vector<int64_t> shard_sizes(int64_t rows, int world, std::span<const double> weights) {
  if (world < 1)
    throw UsageError(fmt::format("a batch cannot be split over {} replicas", world), "at least 1 is needed");
  if (rows < 0) throw UsageError(fmt::format("a batch cannot have {} rows", rows));
  if (!weights.empty()) return weighted_sizes(rows, weights, checked_sum(weights, world));
  std::vector<int64_t> sizes(static_cast<size_t>(world), rows / world);
  for (int64_t i = 0; i < rows % world; ++i) ++sizes[static_cast<size_t>(i)];
  return sizes;
}

}  // namespace lockstep
