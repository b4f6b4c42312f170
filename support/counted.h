// Counts in messages: "1 replica", "2 replicas", "60,000 images".
#pragma once

#include <fmt/format.h>

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

// The count with its noun, whose plural must be formed with s.
inline std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", with_commas(count), noun, count == 1 ? "" : "s");
}

}  // namespace lockstep
