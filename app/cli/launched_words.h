// The command line of `lockstep launch ... -- COMMAND ...`: CLI11 must not read the second part.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr std::string_view kLaunch = "launch";  // the subcommand

struct CommandLine {
  std::vector<std::string> words = {};     // without the program's name
  std::vector<std::string> launched = {};  // words behind `--` if the subcommand is launch; exactly as it was
};

CommandLine split_command_line(int argc, const char* const* argv);

}  // namespace lockstep
