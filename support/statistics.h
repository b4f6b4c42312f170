// Medians, quartiles and paired ratios of repeated measurements.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace lockstep {

// The q-th quantile (0: smallest, .5: median, 1: largest), by linear interpolation between the two nearest
// values. Throws UsageError when there are no values.
double quantile(std::vector<double> values, double q);
double median(std::vector<double> values);

// The larger of two differences. NaN if either is NaN, which std::max does not promise.
double worse(double a, double b);

// The results of a repeated measurement.
struct Quartiles {
  double median = 0;
  double low = 0;   // first quartile
  double high = 0;  // third quartile
  int repeats = 0;

  // The interquartile range as a part of the median; 0 if the median is 0.
  double relative_iqr() const { return median == 0 ? 0 : (high - low) / median; }
};

Quartiles quartiles_of(const std::vector<double>& values);

// The fewest repetitions that a ratio is taken from.
inline constexpr size_t kRatioRepeats = 3;

// The median of a[i] / b[i], where a[i] and b[i] were measured in the same repetition, so that what slows
// down a whole repetition cancels out. Empty with fewer than kRatioRepeats repetitions. Throws UsageError
// when the sizes differ.
std::optional<double> paired_ratio(std::span<const double> a, std::span<const double> b);

// Returns true if the median is known to within `tolerance` of itself on both sides, by the order statistics
// that bracket it in 95 of 100 cases (ranks n/2 -+ .98 sqrt(n); W. J. Conover, "Practical Nonparametric
// Statistics", section 3.2). False with fewer than nine values.
bool median_is_stable(const std::vector<double>& values, double tolerance);

}  // namespace lockstep
