#include <lockstep/app/cli/validators.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include <lockstep/parallel/threads/openmp_threads.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/split_text.h>
#include <lockstep/support/suggest.h>

namespace lockstep {
namespace {

const std::string kAccepted;  // CLI11: an empty text means "accepted"

// "auto, always or never"
std::string either_of(const std::vector<std::string>& choices) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += choices[i];
  }
  return text;
}

// from_chars() accepts no plus sign.
std::string_view without_plus(std::string_view text) {
  const bool plus = text.starts_with('+') && !text.starts_with("+-");
  return plus ? text.substr(1) : text;
}

// Leading zeros are refused: C and many shells read 010 as 8.
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
  if (too_large || (!too_small && value > max)) {
    return fmt::format("must be at most {}, got {}", with_commas(max), text);
  }
  if (too_small || value < min) return fmt::format("must be at least {}, got {}", min, text);
  return kAccepted;
}

// Returns what is wrong, else sets `value`.
std::string check_number(const std::string& text, double& value) {
  const auto digits = without_plus(text);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::invalid_argument || end != digits.data() + digits.size()) {
    return fmt::format("is not a number: {}", in_quotes(text));
  }
  if (error == std::errc::result_out_of_range) {
    return fmt::format("is too large or too small for a double: {}", in_quotes(text));
  }
  if (!std::isfinite(value)) return fmt::format("must be a finite number, got {}", text);
  return kAccepted;
}

// Accepts the numbers for which `fits` is true; `range` describes them.
CLI::Validator number(bool (*fits)(double), const char* range) {
  const auto check = [fits, range](const std::string& text) {
    double value = 0;
    auto problem = check_number(text, value);
    if (problem.empty() && !fits(value)) problem = fmt::format("must be {}, got {}", range, text);
    return problem;
  };
  return CLI::Validator(check, "");
}

}  // namespace

CLI::Validator one_of(std::vector<std::string> choices) {
  const auto shown = fmt::format("{}", fmt::join(choices, "|"));
  auto check = [choices = std::move(choices)](const std::string& text) {
    for (const auto& choice : choices) {
      if (text == choice) return kAccepted;
    }
    auto message = fmt::format("must be {}, got {}", either_of(choices), in_quotes(text));
    if (const auto near = nearest(text, choices)) return message + fmt::format("\ndid you mean '{}'?", *near);
    if (const auto longer = completions(text, choices); !longer.empty()) {
      message += fmt::format("\ndid you mean {}?", either_of(longer));
    }
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

CLI::Validator thread_count() {
  const auto check = [](const std::string& text) {
    auto problem = check_int(text, 1, kMaxThreads);
    if (!problem.empty()) return problem;
    problem = check_int(text, 1, granted_threads(kMaxThreads));
    if (problem.empty()) return kAccepted;
    return problem + ": OMP_THREAD_LIMIT grants no more\nunset OMP_THREAD_LIMIT, or use fewer threads;";
  };
  return CLI::Validator(check, "");
}

CLI::Validator positive_number() {
  return number([](double value) { return value > 0; }, "above 0");
}

CLI::Validator non_negative_number() {
  return number([](double value) { return value >= 0; }, "at least 0");
}

CLI::Validator fraction() {
  return number([](double value) { return value >= 0 && value < 1; }, "at least 0 and below 1");
}

CLI::Validator open_fraction() {
  return number([](double value) { return value > 0 && value < 1; }, "above 0 and below 1");
}

CLI::Validator list_of(CLI::Validator element) {
  auto check = [element = std::move(element)](const std::string& list) {
    for (const auto part : split_text(list, ',')) {
      const std::string word(part);
      if (word.empty()) return fmt::format("has an empty value in {}", in_quotes(list));
      if (auto problem = element(word); !problem.empty()) return problem;
    }
    return kAccepted;
  };
  return CLI::Validator(std::move(check), "");
}

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
