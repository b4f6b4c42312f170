// Counts in messages: "1 replica", "2 replicas", "60,000 images".
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// "60,000", in every locale.
inline std::string with_commas(int64_t number) {
  auto text = fmt::format("{}", number);
  const size_t first_digit = number < 0 ? 1 : 0;
  for (size_t end = text.size(); end > first_digit + 3;) {
    end -= 3;
    text.insert(end, ",");
  }
  return text;
}

// The count with its noun, whose plural must be formed with s.
inline std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", with_commas(count), noun, count == 1 ? "" : "s");
}

}  // namespace lockstep
