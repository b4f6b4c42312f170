// Messages on standard error. Only this file uses spdlog.
#pragma once

#include <string_view>

#include <lockstep/app/terminal/terminal.h>

namespace lockstep {

// Call it before the first message. Messages of several threads do not mix within a line.
void set_up_logging(const Terminal& terminal);

// Prints "lockstep: warning: ...".
void warn(std::string_view message);

// Prints "lockstep: ...".
void inform(std::string_view message);

}  // namespace lockstep
