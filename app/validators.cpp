#include <lockstep/app/validators.h>

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include <lockstep/app/suggest.h>

namespace lockstep {
namespace {

const std::string kAccepted;  // CLI11 takes an empty text for "accepted"

// "auto, always or never"
std::string list_choices(const std::vector<std::string>& choices) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += choices[i];
  }
  return text;
}

// from_chars knows no plus sign.
std::string_view without_plus(std::string_view text) {
  const bool plus = text.starts_with('+') && !text.starts_with("+-");
  return plus ? text.substr(1) : text;
}

// A leading zero is refused, because C and many shells read 010 as 8.
bool leading_zero(std::string_view digits) {
  if (digits.starts_with('-')) digits.remove_prefix(1);
  return digits.size() > 1 && digits.front() == '0';
}

std::string check_int(const std::string& text, int64_t min, int64_t max) {
  const auto digits = without_plus(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = error != std::errc::invalid_argument && end == digits.data() + digits.size();
  if (!whole || leading_zero(digits)) return fmt::format("is not a whole number: {}", in_quotes(text));

  const bool too_large = error == std::errc::result_out_of_range && digits.front() != '-';
  const bool too_small = error == std::errc::result_out_of_range && digits.front() == '-';
  if (too_large || (!too_small && value > max)) return fmt::format("must be at most {}, got {}", max, text);
  if (too_small || value < min) return fmt::format("must be at least {}, got {}", min, text);
  return kAccepted;
}

std::string check_positive_number(const std::string& text) {
  const auto digits = without_plus(text);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::invalid_argument || end != digits.data() + digits.size()) {
    return fmt::format("is not a number: {}", in_quotes(text));
  }
  if (error == std::errc::result_out_of_range) {
    return fmt::format("is too large or too small for a double: {}", in_quotes(text));
  }
  if (!std::isfinite(value)) return fmt::format("must be a finite number, got {}", text);
  if (value <= 0) return fmt::format("must be above 0, got {}", text);
  return kAccepted;
}

}  // namespace

CLI::Validator one_of(std::vector<std::string> choices) {
  const auto shown = fmt::format("{}", fmt::join(choices, "|"));
  auto check = [choices = std::move(choices)](const std::string& text) {
    for (const auto& choice : choices) {
      if (text == choice) return kAccepted;
    }
    auto message = fmt::format("must be {}, got {}", list_choices(choices), in_quotes(text));
    if (const auto near = nearest(text, choices)) message += fmt::format("\ndid you mean '{}'?", *near);
    return message;
  };
  return CLI::Validator(std::move(check), shown);
}

CLI::Validator positive_int(int64_t max) {
  return CLI::Validator([max](const std::string& text) { return check_int(text, 1, max); }, "");
}

CLI::Validator non_negative_int(int64_t max) {
  return CLI::Validator([max](const std::string& text) { return check_int(text, 0, max); }, "");
}

CLI::Validator positive_number() { return CLI::Validator(check_positive_number, ""); }

CLI::Validator boolean() {
  const auto check = [](const std::string& text) {
    const bool known = text == "1" || text == "0" || text == "true" || text == "false";
    return known ? kAccepted : fmt::format("must be 1, 0, true or false, got {}", in_quotes(text));
  };
  return CLI::Validator(check, "");
}

CLI::Validator not_a_flag() {
  const auto check = [](const std::string& text) {
    return text.starts_with("--") ? fmt::format("needs a value, but {} follows", in_quotes(text)) : kAccepted;
  };
  return CLI::Validator(check, "");
}

}  // namespace lockstep
