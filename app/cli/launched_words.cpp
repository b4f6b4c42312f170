#include <lockstep/app/cli/launched_words.h>

#include <algorithm>
#include <cstddef>

namespace lockstep {

CommandLine split_command_line(int argc, const char* const* argv) {
  CommandLine line;
  line.words.assign(argv + std::min(argc, 1), argv + argc);
  size_t command = 0;  // the first word that is no flag of the program
  while (command < line.words.size() && line.words[command].starts_with('-')) {
    command += line.words[command] == "--color" ? 2 : 1;
  }
  if (command >= line.words.size() || line.words[command] != kLaunch) return line;
  const auto dashes =
      std::find(line.words.begin() + static_cast<std::ptrdiff_t>(command), line.words.end(), "--");
  if (dashes == line.words.end()) return line;
  line.launched.assign(dashes + 1, line.words.end());
  line.words.erase(dashes, line.words.end());
  return line;
}

}  // namespace lockstep
