// CLI11's errors as messages of lockstep.
#pragma once

#include <CLI/CLI.hpp>

#include <lockstep/support/error.h>

namespace lockstep {

// For an error that parsing `app` has thrown. The message names the flag (or the environment variable), the
// command and both values; the hint names the nearest known word.
UsageError usage_error(const CLI::App& app, const CLI::ParseError& error);

// Whether --help was given, to `app` or to one of its subcommands.
bool help_requested(const CLI::App& app);

// Whether the command line ends where a subcommand must follow: `lockstep`, `lockstep demo`.
bool ends_before_subcommand(const CLI::App& app);

}  // namespace lockstep
