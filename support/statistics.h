// Medians and how far measurements scatter round them.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace lockstep {

// The q-th quantile (0: smallest, .5: median, 1: largest), between two neighbours by linear interpolation.
// Throws UsageError when there are no values.
double quantile(std::vector<double> values, double q);
double median(std::vector<double> values);

// The larger of two differences; NaN where one of them is, which std::max may lose.
double worse(double a, double b);

// A measurement that was repeated.
struct Spread {
  double median = 0;
  double low = 0;   // first quartile
  double high = 0;  // third quartile
  int repeats = 0;

  // Width of the middle half as a part of the median; 0 where that is 0.
  double relative() const { return median == 0 ? 0 : (high - low) / median; }
};

Spread spread_of(const std::vector<double>& values);

// Turns that a ratio takes at least.
inline constexpr size_t kRatioRepeats = 3;

// The median of a[i] / b[i], where a[i] and b[i] were measured in the same turn: what slows down a whole turn
// does not count. Nothing with fewer than kRatioRepeats turns. Throws UsageError when the numbers of turns
// differ.
std::optional<double> paired_ratio(std::span<const double> a, std::span<const double> b);

// Whether the median is known to within `tolerance` of itself, on both sides: by the order statistics that
// bracket it in 95 of 100 cases (ranks n/2 -+ .98 sqrt(n); W. J. Conover, "Practical Nonparametric
// Statistics", section 3.2). Never before the ninth value.
bool median_is_stable(const std::vector<double>& values, double tolerance);

}  // namespace lockstep
