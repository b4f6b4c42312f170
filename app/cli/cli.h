// The command line: its subcommands, and the conventions that hold for all of them.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <string>

namespace lockstep {

// All subcommands; parsing it runs the one that was named.
std::unique_ptr<CLI::App> build_cli();

// Gives a finished tree of subcommands what holds for every flag, so that no subcommand needs to care:
//  - `--flag` also reads LOCKSTEP_FLAG_FLAG; the command line comes first
//  - a flag may be given once, and its value is not the next flag
//  - a command that has subcommands needs one of them
void apply_conventions(CLI::App& app);

// LOCKSTEP_FLAG_BATCH_SIZE for --batch-size. Empty for what cannot be set there (--help, --version).
std::string environment_name(const CLI::App& app, const CLI::Option& option);

}  // namespace lockstep
