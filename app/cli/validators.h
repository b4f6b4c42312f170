// Checks of flags' values, for CLI::Option::check(). A refusal says what was expected and what was found;
// app/cli/help/usage.h puts the name of the flag, or of the environment variable, before it. CLI11 2.1's own
// checks of ranges say "Value 0 not in range 0.000000 to 1797...", with 309 digits, also for a word.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lockstep {

inline constexpr int64_t kMaxThreads = 1024;  // per replica, for --threads

// Exactly one of these words. The hint names the nearest one.
CLI::Validator one_of(std::vector<std::string> choices);

// Whole numbers in plain decimal: 1, 2, ... max and 0, 1, ... max.
CLI::Validator positive_int(int64_t max = std::numeric_limits<int64_t>::max());
CLI::Validator non_negative_int(int64_t max = std::numeric_limits<int64_t>::max());

// Threads per replica: 1, 2, ... kMaxThreads, and no more than OpenMP grants.
CLI::Validator thread_count();

// Finite numbers: above 0; at least 0; at least 0 and below 1; above 0 and below 1.
CLI::Validator positive_number();
CLI::Validator non_negative_number();
CLI::Validator fraction();
CLI::Validator open_fraction();

// Comma-separated values, each accepted by `element`: ".1,.2".
CLI::Validator list_of(CLI::Validator element);

// 1, 0, true or false: for a flag without a value, from the environment or as --flag=true.
CLI::Validator boolean();

// Refuses a flag in the place of a value: `--metrics --quiet` lacks the file.
CLI::Validator not_a_flag();

}  // namespace lockstep
