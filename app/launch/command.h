// The command that a launch starts.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct LaunchCommand {
  std::string path = {};                // of the program
  std::vector<std::string> words = {};  // its command line, beginning with its name
};

// words: what follows `--`: one of the subcommands, or a program's path, which contains a slash; then its
// arguments. Throws UsageError when there are no words, for an unknown subcommand, for `launch` itself, and
// for a path without a program.
LaunchCommand launch_command(const std::vector<std::string>& words, std::span<const std::string> subcommands);

}  // namespace lockstep
