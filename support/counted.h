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

// The count with its noun, whose plural must be formed with s.
inline std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", with_commas(count), noun, count == 1 ? "" : "s");
}

// "9,873 MB", "4.8 MB", "516 KB", "12 bytes": MB are a million bytes.
inline std::string memory_text(int64_t bytes) {
  const auto number = static_cast<double>(bytes);
  if (number >= 9.95e6) return with_commas(std::llround(number / 1e6)) + " MB";
  if (number >= 999.5e3) return fmt::format("{:.1f} MB", number / 1e6);
  return bytes >= 1000 ? fmt::format("{} KB", std::llround(number / 1e3)) : counted(bytes, "byte");
}

}  // namespace lockstep
