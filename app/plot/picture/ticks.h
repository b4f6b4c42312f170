// Computes the ticks of axes and their labels.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <lockstep/app/plot/picture/figure.h>

namespace lockstep::plot {

// 1, 2 and 5 times powers of ten within low .. high, or only powers of ten if there would be more than
// `most`. Both limits above 0.
std::vector<Tick> decade_ticks(double low, double high, int most);

// Powers of two in equal steps of exponents, from the first at or above `low`, if possible to the last: "8",
// "512", "32K", "2M", "128M". Both limits above 0.
std::vector<Tick> byte_ticks(double low, double high, int most);

// Powers of two as plain numbers: "0.5", "1", "2"; on a short axis also the values between (1.5, 3).
std::vector<Tick> doubling_ticks(double low, double high);

// Axes that hold all values, which must be finite, and above 0 on a logarithmic scale. linear_axis and
// decade_axis begin and end at a tick; doubling_axis leaves room beyond the values. Without values the range
// is arbitrary.
Axis linear_axis(std::string label, std::span<const double> values, double least_step = 0);
Axis decade_axis(std::string label, std::span<const double> values);
Axis byte_axis(std::string label, std::span<const double> values);
Axis doubling_axis(std::string label, std::span<const double> values);

}  // namespace lockstep::plot
