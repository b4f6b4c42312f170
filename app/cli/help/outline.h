// The commands, flags and values of the command line as plain data, read from CLI11's tree. The help, the
// man page and the completions are made from it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep {

struct FlagOutline {
  std::string name = {};        // "--batch-size"
  std::string short_name = {};  // "-n"; empty: none
  std::string value = {};       // as the help names it: "N", "FILE", "fp32|bf16"; empty: it takes none
  std::string text = {};        // its description, with its default
  std::string group = {};       // heading of the help; empty: none
  // Values that a shell can offer: all that there are, or some of many (--devices).
  std::vector<std::string> words = {};
  bool takes_file = false;    // the value may be a file
  bool takes_folder = false;  // the value may be a folder
};

// A value without a flag.
struct ArgumentOutline {
  std::string name = {};  // "FILE"
  std::string text = {};
  bool required = false;
  bool repeated = false;
  std::vector<std::string> words = {};  // all values that it takes; empty: others
  bool takes_file = false;
  bool takes_folder = false;
};

struct CommandOutline {
  std::string name = {};                        // "step"
  std::string full_name = {};                   // "lockstep bench step"
  std::string text = {};                        // its description
  std::string footer = {};                      // stands below its flags; may be empty
  bool launches = false;                        // takes a command after `--`
  std::vector<ArgumentOutline> arguments = {};  // in order
  std::vector<FlagOutline> flags = {};          // its own, then --help, then those of the program
  std::vector<CommandOutline> subcommands = {};
};

// full_name: of `command`, as typed.
CommandOutline outline_of(const CLI::App& command, const std::string& full_name);

// The command and all below it, in order.
std::vector<const CommandOutline*> all_commands(const CommandOutline& command);

}  // namespace lockstep
