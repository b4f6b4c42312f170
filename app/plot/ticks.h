// Where an axis has its ticks and what they say.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <lockstep/app/plot/figure.h>

namespace lockstep::plot {

// Multiples of 1, 2 or 5 times a power of ten within low .. high, at most `most` of them (2 at least), the
// step not below `least_step`. Limits that are not finite or too far apart for a double have none.
std::vector<Tick> linear_ticks(double low, double high, int most, double least_step = 0);

// 1, 2 and 5 times powers of ten within low .. high, or powers of ten alone where those are more than `most`.
// Both limits above 0.
std::vector<Tick> decade_ticks(double low, double high, int most);

// Powers of two in equal steps of exponents, from the first one at or above `low`, and to the last one where
// that is possible: "8", "512", "32K", "2M", "128M".
// Both limits above 0.
std::vector<Tick> byte_ticks(double low, double high, int most);

// Powers of two as plain numbers: "0.5", "1", "2"; with those between (1.5, 3) where the axis is short.
std::vector<Tick> doubling_ticks(double low, double high);

// Axes that hold all of the values, which are finite (and above 0 where the scale is a logarithm). The first
// two reach to a tick of theirs at either end, the last one has room beyond the values. Without values they
// are some range.
Axis linear_axis(std::string label, std::span<const double> values, double least_step = 0);
Axis decade_axis(std::string label, std::span<const double> values);
Axis byte_axis(std::string label, std::span<const double> values);
Axis doubling_axis(std::string label, std::span<const double> values);

}  // namespace lockstep::plot
