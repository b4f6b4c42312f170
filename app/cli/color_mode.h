// What --color asks for.
#pragma once

#include <lockstep/app/terminal/terminal.h>

namespace CLI {
class App;
}

namespace lockstep {

// app: any subcommand, once the command line is parsed.
ColorMode color_mode(const CLI::App& app);

}  // namespace lockstep
