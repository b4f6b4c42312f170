// What CLI11 found wrong with a command line, said in our words.
#pragma once

#include <CLI/CLI.hpp>

#include <lockstep/support/error.h>

namespace lockstep {

// One sentence that names the flag (or the environment variable), the command and both values; the hint has
// the nearest known name. For an error that parsing `app` has thrown.
UsageError usage_error(const CLI::App& app, const CLI::ParseError& error);

// --help was among the words that were read, for `app` or one of its subcommands.
bool help_requested(const CLI::App& app);

// The command line ends where a subcommand had to follow: `lockstep`, `lockstep demo`.
bool ends_before_subcommand(const CLI::App& app);

}  // namespace lockstep
