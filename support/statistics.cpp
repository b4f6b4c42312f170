#include <lockstep/support/statistics.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

double quantile_of_sorted(std::span<const double> sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const auto above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double quantile(std::vector<double> values, double q) {
  if (values.empty()) throw UsageError("there is no quantile of 0 values");
  std::sort(values.begin(), values.end());
  return quantile_of_sorted(values, q);
}

double median(std::vector<double> values) { return quantile(std::move(values), .5); }

double worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

Quartiles quartiles_of(const std::vector<double>& values) {
  return {.median = median(values),
          .low = quantile(values, .25),
          .high = quantile(values, .75),
          .repeats = static_cast<int>(values.size())};
}

std::optional<double> paired_ratio(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) {
    throw UsageError(fmt::format("{} repetitions cannot be paired with {}", a.size(), b.size()));
  }
  if (a.size() < kRatioRepeats) return std::nullopt;
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return median(ratios);
}

bool median_is_stable(const std::vector<double>& values, double tolerance) {
  constexpr size_t kFewest = 9;
  if (values.size() < kFewest) return false;
  auto sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const auto n = static_cast<double>(sorted.size());
  const double away = .98 * std::sqrt(n);
  const auto low = static_cast<size_t>(std::max(0.0, std::floor(n / 2 - away)));
  const auto high = std::min(sorted.size() - 1, static_cast<size_t>(std::ceil(n / 2 + away)));
  const double middle = quantile_of_sorted(sorted, .5);
  return sorted[high] - middle <= tolerance * middle && middle - sorted[low] <= tolerance * middle;
}

}  // namespace lockstep
