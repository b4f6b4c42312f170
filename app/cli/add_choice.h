// Flags whose value is one of an enumeration's names, parsed straight into the enumeration.
#pragma once

#include <CLI/CLI.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include <lockstep/app/cli/validators.h>
#include <lockstep/support/choices.h>

namespace lockstep {

// Returns the option, which accepts the names of `choices` and calls `set` with the value. `default_name` is
// shown in the help; empty: none.
template <class Enum, size_t kCount>
CLI::Option* add_choice_option(CLI::App& command, const std::string& flag, std::function<void(Enum)> set,
                               const Choice<Enum> (&choices)[kCount], const std::string& help,
                               std::string default_name) {
  const auto parse = [set = std::move(set), &choices](const CLI::results_t& words) {
    set(value_of(choices, words.front()));
    return true;
  };
  return command.add_option(flag, parse, help)
      ->default_str(std::move(default_name))
      ->check(one_of(names_of(choices)));
}

// `value` holds the default. `choices` is one of the tables beside the enumerations (support/choices.h).
template <class Enum, size_t kCount>
CLI::Option* add_choice(CLI::App& command, const std::string& flag, Enum& value,
                        const Choice<Enum> (&choices)[kCount], const std::string& help) {
  const std::function<void(Enum)> set = [&value](Enum chosen) { value = chosen; };
  return add_choice_option(command, flag, set, choices, help, std::string(name_of(choices, value)));
}

// Without a default: `value` stays empty where the flag is not given.
template <class Enum, size_t kCount>
CLI::Option* add_choice(CLI::App& command, const std::string& flag, std::optional<Enum>& value,
                        const Choice<Enum> (&choices)[kCount], const std::string& help) {
  const std::function<void(Enum)> set = [&value](Enum chosen) { value = chosen; };
  return add_choice_option(command, flag, set, choices, help, "");
}

}  // namespace lockstep
