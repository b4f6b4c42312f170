// Messages for the person at the terminal, on standard error. The only place that knows spdlog.
#pragma once

#include <string_view>

#include <lockstep/app/terminal/terminal.h>

namespace lockstep {

// Before the first message. Each line is written as a whole, whichever thread it comes from.
void set_up_logging(const Terminal& terminal);

// "lockstep: warning: ..."
void warn(std::string_view message);

// "lockstep: ...", of what goes as it should.
void inform(std::string_view message);

}  // namespace lockstep
