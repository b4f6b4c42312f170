// Flags and commands of other trainers, for hints: who types --gpus finds --devices.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep {

struct OtherWords {
  std::string_view words;  // with blanks between them: "--gpus --num-gpus", or "test evaluate" for commands
  std::string_view hint;   // names flags of the command that was typed, and in quotes 'lockstep ...'
  // The only command of which the flags mean what the hint says. Empty: any that has them.
  std::string_view command = {};
};

// All of them. No word is a flag or a command of lockstep.
std::span<const OtherWords> other_words();

// The hint for a flag or a command that lockstep does not have, as typed; a flag in any case and with '_' for
// '-'. Empty: the word is unknown, or the hint is not for `command`, or names a flag that it does not have.
std::string_view other_words_hint(std::string_view word, const CLI::App& command);

// "--devices" and "--threads" in "use --devices cuda, and --threads": not those within quotes, which are of
// other commands.
std::vector<std::string> flags_named_in(std::string_view hint);

}  // namespace lockstep
