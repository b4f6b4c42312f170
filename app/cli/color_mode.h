// The value of --color.
#pragma once

#include <lockstep/app/terminal/terminal.h>

namespace CLI {
class App;
}

namespace lockstep {

// app: any subcommand of a parsed command line.
ColorMode color_mode(const CLI::App& app);

}  // namespace lockstep
