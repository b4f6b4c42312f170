// What the value of a flag must be: for CLI::Option::check(). Each refuses with a text that says what was
// expected and what was found; app/cli/usage.h puts the name of the flag, or of the environment variable,
// before it.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lockstep {

inline constexpr int64_t kMaxThreads = 1024;  // of a replica, for every command's --threads

// One of these words, exactly. A word that is nearly one of them is named in the hint.
CLI::Validator one_of(std::vector<std::string> choices);

// Whole numbers in plain decimal: 1, 2, ... max and 0, 1, ... max.
CLI::Validator positive_int(int64_t max = std::numeric_limits<int64_t>::max());
CLI::Validator non_negative_int(int64_t max = std::numeric_limits<int64_t>::max());

// A finite number: above 0; 0 or above; 0 or above and below 1.
CLI::Validator positive_number();
CLI::Validator non_negative_number();
CLI::Validator fraction();

// Values with commas between them, each of which `element` accepts: ".1,.2".
CLI::Validator list_of(CLI::Validator element);

// What stands between the commas.
std::vector<std::string> words_of(const std::string& list);

// 1, 0, true or false: what a flag without a value takes from the environment or as --flag=true.
CLI::Validator boolean();

// A flag's value is not itself a flag: `--metrics --quiet` has forgotten the file.
CLI::Validator not_a_flag();

}  // namespace lockstep
