#include <lockstep/app/plot/picture/ticks.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace lockstep::plot {
namespace {

constexpr int kMostTicks = 8;           // on an axis of a picture
constexpr double kTickRounding = 1e-9;  // rounding errors, relative to a step or an exponent
constexpr double kLargest = 1e300;      // beyond it differences may overflow
constexpr double kRoom = .07;           // at both ends of a doubling axis, for labels beside points
constexpr double kShortAxis = 2.6;      // in doublings; a shorter axis has ticks between powers of two
constexpr std::array kNice{1.0, 2.0, 5.0, 10.0};

// The smallest of 1, 2 and 5 times a power of ten that is at least `value`.
double nice_at_least(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double nice : kNice) {
    if (nice * power >= value * (1 - kTickRounding)) return nice * power;
  }
  return 10 * power;
}

// With as many decimals as the step has.
std::string linear_label(double value, double step) {
  if (step < 1e-6 || std::abs(value) >= 1e7) return fmt::format("{:.6g}", value);
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + kTickRounding)));
  return fmt::format("{:.{}f}", value, decimals);
}

std::string plain_label(double value) {
  if (value >= 1e-4 && value < 1e6) return fmt::format("{:g}", value < 1e5 ? value : std::round(value));
  const int exponent = static_cast<int>(std::floor(std::log10(value) + kTickRounding));
  return fmt::format("{:.0f}e{}", value / std::pow(10, exponent), exponent);
}

std::string byte_label(int exponent) {
  constexpr std::array kUnits{"", "K", "M", "G", "T", "P", "E"};
  if (exponent < 0) return plain_label(std::exp2(exponent));
  const auto unit = std::min<size_t>(static_cast<size_t>(exponent) / 10, kUnits.size() - 1);
  return fmt::format("{:.0f}{}", std::exp2(exponent - 10 * static_cast<int>(unit)), kUnits[unit]);
}

bool is_range(double low, double high) {
  return std::isfinite(low) && std::isfinite(high) && low <= high && std::max(-low, high) < kLargest;
}

struct Range {
  double low;
  double high;
};

// The range of the values, or `otherwise` if there are none.
Range range_of(std::span<const double> values, Range otherwise) {
  if (values.empty()) return otherwise;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {*low, *high};
}

// The tick of the decade scale at or below the value.
double decade_tick_below(double value) {
  const double power = std::pow(10, std::floor(std::log10(value) + kTickRounding));
  for (const double nice : {5.0, 2.0}) {
    if (nice * power <= value * (1 + kTickRounding)) return nice * power;
  }
  return power;
}

// The multiples of `step` within low .. high.
std::vector<Tick> multiples(double low, double high, double step) {
  std::vector<Tick> ticks;
  const double first = std::ceil(low / step - kTickRounding);
  const int count = static_cast<int>(std::floor(high / step + kTickRounding) - first) + 1;
  for (int i = 0; i < count; ++i) {
    const double at = (first + i) * step + 0.0;  // turns -0 into 0
    ticks.push_back({at, linear_label(at, step)});
  }
  return ticks;
}

}  // namespace

std::vector<Tick> decade_ticks(double low, double high, int most) {
  if (!is_range(low, high) || low <= 0) return {};
  const int first = static_cast<int>(std::floor(std::log10(low) + kTickRounding));
  const int last = static_cast<int>(std::floor(std::log10(high) + kTickRounding));
  std::vector<Tick> fine, powers;
  for (int exponent = first; exponent <= last; ++exponent) {
    for (const double nice : {1.0, 2.0, 5.0}) {
      const double at = nice * std::pow(10, exponent);
      if (at < low * (1 - kTickRounding) || at > high * (1 + kTickRounding)) continue;
      fine.push_back({at, plain_label(at)});
      if (nice == 1) powers.push_back(fine.back());
    }
  }
  if (static_cast<int>(fine.size()) <= most) return fine;
  const auto stride = (powers.size() + static_cast<size_t>(most) - 1) / static_cast<size_t>(most);
  std::vector<Tick> ticks;
  for (size_t i = 0; i < powers.size(); i += stride) ticks.push_back(powers[i]);
  return ticks;
}

std::vector<Tick> byte_ticks(double low, double high, int most) {
  if (!is_range(low, high) || low <= 0) return {};
  const int first = static_cast<int>(std::ceil(std::log2(low) - kTickRounding));
  const int last = static_cast<int>(std::floor(std::log2(high) + kTickRounding));
  const int doublings = std::max(last - first, 1);
  int step = 1;
  while (doublings / step + 1 > std::max(most, 2)) ++step;
  // Prefers a step up to twice as wide if it ends at the last size.
  for (int wider = step; wider <= 2 * step; ++wider) {
    if (doublings % wider != 0) continue;
    step = wider;
    break;
  }
  std::vector<Tick> ticks;
  for (int exponent = first; exponent <= last; exponent += step) {
    ticks.push_back({std::exp2(exponent), byte_label(exponent)});
  }
  return ticks;
}

std::vector<Tick> doubling_ticks(double low, double high) {
  if (!is_range(low, high) || low <= 0) return {};
  const bool between = std::log2(high / low) <= kShortAxis;
  std::vector<Tick> ticks;
  const int last = static_cast<int>(std::floor(std::log2(high) + kTickRounding));
  int exponent = static_cast<int>(std::floor(std::log2(low) + kTickRounding));
  const int step = 1 + (last - exponent) / 12;
  for (; exponent <= last; exponent += step) {
    for (const double times : {1.0, 1.5}) {
      const double at = times * std::exp2(exponent);
      if (at < low * (1 - kTickRounding) || at > high * (1 + kTickRounding) || (times > 1 && !between))
        continue;
      ticks.push_back({at, plain_label(at)});
    }
  }
  return ticks;
}

Axis linear_axis(std::string label, std::span<const double> values, double least_step) {
  auto [low, high] = range_of(values, {0, 1});
  if (low == high) {  // room on both sides of the only value
    const double room = std::max(low == 0 ? 1 : std::abs(low) / 10, least_step);
    low -= room;
    high += room;
  }
  if (!is_range(low, high)) return {std::move(label), Scale::kLinear, low, high, {}};
  // Extending the axis to ticks may add one at each end.
  const double step = nice_at_least(std::max((high - low) / (kMostTicks - 2), least_step));
  low = std::floor(low / step + kTickRounding) * step + 0.0;
  high = std::ceil(high / step - kTickRounding) * step + 0.0;
  return {std::move(label), Scale::kLinear, low, high, multiples(low, high, step)};
}

Axis decade_axis(std::string label, std::span<const double> values) {
  auto [low, high] = range_of(values, {1, 10});
  low = decade_tick_below(low);
  const double below = decade_tick_below(high);
  if (below < high * (1 - kTickRounding)) {  // 1, 2, 5, 10: the next one up
    const double mantissa = below / std::pow(10, std::floor(std::log10(below) + kTickRounding));
    high = mantissa > 1.5 && mantissa < 3 ? 2.5 * below : 2 * below;
  }
  if (low == high) {
    low = decade_tick_below(low * .9);
    high *= 2;
  }
  return {std::move(label), Scale::kLog, low, high, decade_ticks(low, high, kMostTicks)};
}

Axis byte_axis(std::string label, std::span<const double> values) {
  auto [low, high] = range_of(values, {1, 1024});
  auto ticks = byte_ticks(low, high, kMostTicks);
  if (low == high) low /= 2, high *= 2;
  return {std::move(label), Scale::kLog, low, high, std::move(ticks)};
}

Axis doubling_axis(std::string label, std::span<const double> values) {
  auto [low, high] = range_of(values, {1, 2});
  if (low == high) low /= 2, high *= 2;
  auto ticks = doubling_ticks(low, high);
  const double room = std::pow(high / low, kRoom);
  return {std::move(label), Scale::kLog, low / room, high * room, std::move(ticks)};
}

}  // namespace lockstep::plot
