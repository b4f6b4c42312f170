// Numbers in texts: "4" of "cpux4", "0.5".
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace lockstep {

// The number that the whole text is, as std::from_chars() reads it: without a plus sign or blanks around it.
// Empty for other texts and for numbers that T cannot hold.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T number{};
  const auto* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

// The same for a whole number of digits alone.
template <class T>
std::optional<T> parse_count(std::string_view digits) {
  return digits.starts_with('-') ? std::nullopt : parse_number<T>(digits);
}

}  // namespace lockstep
