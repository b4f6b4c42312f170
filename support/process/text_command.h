// Command lines of `lockstep` that only print a text. They skip set-up and clean-up for computing, which
// would take half of their time.
#pragma once

#include <cstring>

namespace lockstep {

// Returns true if help, versions, completions or the man page are asked for. Needs nothing to be initialised.
inline bool asks_for_text(int argc, const char* const* argv) {
  constexpr const char* kCommands[] = {"help", "version", "completion", "man"};
  constexpr const char* kFlags[] = {"--help", "-h", "--version", "-V"};
  for (const char* command : kCommands) {
    if (argc > 1 && std::strcmp(argv[1], command) == 0) return true;
  }
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
    for (const char* flag : kFlags) {
      if (std::strcmp(argv[i], flag) == 0) return true;
    }
  }
  return false;
}

}  // namespace lockstep
