// CLI11's errors as messages of lockstep.
#pragma once

#include <CLI/CLI.hpp>

#include <span>
#include <string>
#include <vector>

#include <lockstep/support/error.h>

namespace lockstep {

// For an error that parsing `app` has thrown. The message names the flag (or the environment variable), the
// command and both values; the hint names the nearest known word.
UsageError usage_error(const CLI::App& app, const CLI::ParseError& error);

// The subcommand of this name; null if there is none.
const CLI::App* subcommand_named(const CLI::App& command, const std::string& name);

// For an unknown word after these commands: {lockstep, bench} for `lockstep bench WORD`. The hint names the
// nearest known word.
UsageError unexpected_word(const std::string& word, const std::vector<const CLI::App*>& commands);

// Throws UsageError for a known flag with "=" and nothing after it: CLI11 would take `--quiet=` as --quiet,
// and the next word as the value of `--epochs=`. `words`: the command line without the program's name. Does
// nothing if one of them asks for help.
void refuse_empty_values(const CLI::App& app, std::span<const std::string> words);

// Returns true if --help was given, to `app` or to one of its subcommands.
bool help_requested(const CLI::App& app);

// Returns true if the command line ends where a subcommand must follow: `lockstep`, `lockstep demo`.
bool ends_before_subcommand(const CLI::App& app);

}  // namespace lockstep
