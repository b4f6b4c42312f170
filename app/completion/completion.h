// `lockstep completion SHELL` and `lockstep man`: files for the shell and for man, made from the command line
// itself.
#pragma once

#include <string>

#include <lockstep/app/cli/help/outline.h>

namespace CLI {
class App;
}

namespace lockstep {

// The texts that bash and zsh read to complete the words of a command line. program: the whole tree.
std::string bash_completion(const CommandOutline& program);
std::string zsh_completion(const CommandOutline& program);

// The man page, as roff source. version: "0.2.0".
std::string man_page(const CommandOutline& program, const std::string& version);

// app: the whole program.
void setup_completion(CLI::App& app);

}  // namespace lockstep
