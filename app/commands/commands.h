// The command line: the subcommands and their common conventions.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

namespace lockstep {

// All subcommands. Parsing a command line runs the one that it names. launched: what follows `--` on the
// command line of `launch` (app/cli/launched_words.h).
std::unique_ptr<CLI::App> build_cli(std::vector<std::string> launched = {});

// Applies the conventions to a finished tree of subcommands:
//  - `--flag` also reads the variable LOCKSTEP_FLAG_FLAG; the command line takes precedence
//  - a command with --config reads the other flags from that file, too; both take precedence over it
//  - a flag may be given once, and its value is not the next flag
//  - a command with subcommands needs one of them
void apply_conventions(CLI::App& app);

// LOCKSTEP_FLAG_BATCH_SIZE for --batch-size. Empty for options that have no variable (--help, --version).
std::string environment_name(const CLI::App& app, const CLI::Option& option);

}  // namespace lockstep
