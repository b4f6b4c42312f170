// Notices for the person at the terminal: spdlog to standard error, as "lockstep: ..." and "lockstep:
// warning: ...".
#pragma once

#include <lockstep/app/terminal.h>

namespace lockstep {

// Makes the logger that spdlog::info() and spdlog::warn() write to.
void set_up_logging(const Terminal& terminal);

}  // namespace lockstep
