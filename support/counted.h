// Counts in messages: "1 replica", "2 replicas", "60,000 images", "9,873 MB".
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// "60,000", in every locale.
inline std::string with_commas(int64_t number) {
  const auto digits = fmt::format("{}", number);
  const size_t first_digit = number < 0 ? 1 : 0;
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > first_digit && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

// "9,873 MB", of a million bytes each.
inline std::string megabytes_text(int64_t bytes) {
  return with_commas(std::llround(static_cast<double>(bytes) / 1e6)) + " MB";
}

// The count with its noun, whose plural must be formed with s.
inline std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", with_commas(count), noun, count == 1 ? "" : "s");
}

}  // namespace lockstep
