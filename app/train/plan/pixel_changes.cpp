#include <lockstep/app/train/plan/pixel_changes.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include <lockstep/support/error.h>
#include <lockstep/support/parse_number.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/split_text.h>

namespace lockstep {
namespace {

std::optional<std::vector<double>> numbers_in(std::string_view text) {
  std::vector<double> numbers;
  for (const auto part : split_text(text, ',')) {
    const auto number = parse_number<double>(part);
    if (!number || !std::isfinite(*number)) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

// Pixels / 255 are 0 to 1, so their mean is, too. A smaller deviation makes values that no network computes.
void refuse_other_units(const std::string& text, const std::vector<double>& mean,
                        const std::vector<double>& deviation) {
  constexpr double kLeastDeviation = 1e-6;
  const bool fits = std::ranges::all_of(mean, [](double number) { return number >= 0 && number <= 1; }) &&
                    std::ranges::all_of(deviation, [](double number) { return number >= kLeastDeviation; });
  if (fits) return;
  throw UsageError(
      fmt::format("takes means of pixels / 255, from 0 to 1, and deviations of {} at least, got {}",
                  kLeastDeviation, in_quotes(text)),
      "divide means and deviations of pixels by 255");
}

}  // namespace

NormalizeFlag parse_normalize(const std::string& text) {
  if (text == "auto") return {.automatic = true};
  if (text == "none") return {};
  const auto parts = split_text(text, ':');
  const auto mean = numbers_in(parts.front());
  const auto deviation = parts.size() == 2 ? numbers_in(parts.back()) : std::nullopt;
  const bool fits = mean && deviation && mean->size() == deviation->size() &&
                    std::ranges::all_of(*deviation, [](double number) { return number > 0; });
  if (fits) {
    refuse_other_units(text, *mean, *deviation);
    return {.given = {.mean = *mean, .deviation = *deviation}};
  }
  throw UsageError(
      fmt::format("must be auto, none or MEANS:DEVIATIONS of pixels / 255, as many of both and the "
                  "latter above 0, such as 0.49,0.48,0.45:0.25,0.24,0.26, got {}",
                  in_quotes(text)));
}

std::string to_string(const NormalizeFlag& flag) {
  return flag.automatic ? "auto" : normalize_text(flag.given);
}

std::string normalize_text(const Normalization& normalization) {
  if (normalization.mean.empty()) return "none";
  return fmt::format("{}:{}", fmt::join(normalization.mean, ","), fmt::join(normalization.deviation, ","));
}

}  // namespace lockstep
