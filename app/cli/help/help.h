// The layout of --help: at most 80 columns.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include <lockstep/app/cli/help/outline.h>

namespace lockstep {

// "lockstep help [SUBCOMMAND...] [FLAGS]"
std::string usage_line(const CommandOutline& command);

class HelpFormatter : public CLI::FormatterBase {
 public:
  // `command` is the full name: "lockstep train".
  std::string make_help(const CLI::App* app, std::string command, CLI::AppFormatMode mode) const override;
};

}  // namespace lockstep
