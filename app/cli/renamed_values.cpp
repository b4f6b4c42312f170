#include <lockstep/app/cli/renamed_values.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>

#include <lockstep/app/terminal/logging.h>

namespace lockstep {
namespace {

struct RenamedValue {
  std::string_view flag;
  std::string_view old_name;
  std::string_view name;
};

constexpr RenamedValue kRenamedValues[] = {{"--kernels", "stock", "torch"}};

}  // namespace

std::string current_value(std::string_view flag, const std::string& word) {
  for (const auto& renamed : kRenamedValues) {
    if (renamed.flag == flag && renamed.old_name == word) return std::string(renamed.name);
  }
  return word;
}

void warn_of_renamed_values(const CLI::App& app) {
  for (const auto& [flag, old_name, name] : kRenamedValues) {
    const auto* option = app.get_option_no_throw(std::string(flag));
    if (!option) continue;
    const auto& values = option->results();
    if (std::find(values.begin(), values.end(), old_name) == values.end()) continue;
    warn(fmt::format("{} {} is now {} {}; {} will not be taken by the next version", flag, old_name, flag,
                     name, old_name));
  }
  for (const auto* subcommand : app.get_subcommands()) warn_of_renamed_values(*subcommand);
}

}  // namespace lockstep
