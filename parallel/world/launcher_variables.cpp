#include <lockstep/parallel/world/launcher_variables.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include <lockstep/support/error.h>
#include <lockstep/support/parse_number.h>

namespace lockstep {

int number_of(const std::string& name, const std::string& text, int low, int high, const std::string& hint) {
  if (const auto value = parse_number<int>(text); value && *value >= low && *value <= high) return *value;
  throw UsageError(fmt::format("{} is '{}', but it must be a number from {} to {}", name, text, low, high),
                   hint);
}

LauncherVariables::LauncherVariables(const Environment& environment, std::string launcher)
    : environment_(environment), launcher_(std::move(launcher)) {}

std::optional<std::string> LauncherVariables::text(const std::string& name) const {
  auto value = environment_(name);
  return value && !value->empty() ? std::move(value) : std::nullopt;
}

bool LauncherVariables::all_set(const std::vector<std::string>& names) const {
  std::vector<std::string> set, missing;
  for (const auto& name : names) (environment_(name) ? set : missing).push_back(name);
  if (set.empty()) return false;
  if (missing.empty()) return true;
  throw UsageError(fmt::format("half of {}'s environment: {} set, {} missing", launcher_,
                               fmt::join(set, ", "), fmt::join(missing, ", ")),
                   "start the process with the launcher, or unset these variables to train in one process");
}

int LauncherVariables::number(const std::string& name, int low, int high, const char* hint) const {
  return number_of(name, environment_(name).value_or(""), low, high, hint);
}

std::optional<int> LauncherVariables::optional_number(const std::string& name, int low, int high,
                                                      const char* hint) const {
  return text(name) ? std::optional(number(name, low, high, hint)) : std::nullopt;
}

}  // namespace lockstep
