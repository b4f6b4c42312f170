// lockstep launch: starts a command in several processes on this machine, as torchrun does.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep {

struct LaunchOptions {
  std::string processes = {};             // a number, or auto
  int max_restarts = 0;                   // how often all are started again after a failure
  std::vector<std::string> command = {};  // a subcommand or a program's path, and its arguments
};

// command: what follows `--` on the command line.
void setup_launch(CLI::App& app, std::vector<std::string> command);

// Returns when all processes have ended with code 0. Otherwise throws an Error with the code of the first one
// that failed (supervise.h), or InterruptedError after a signal. subcommands: that `command` may name.
void run_launch(const LaunchOptions& options, std::span<const std::string> subcommands);

}  // namespace lockstep
