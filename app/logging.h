// Notices for the person at the terminal, on standard error: "lockstep: warning: ...". The only place that
// knows spdlog.
#pragma once

#include <string_view>

#include <lockstep/app/terminal.h>

namespace lockstep {

// Before the first message. Each line is written as a whole, whichever thread it comes from.
void set_up_logging(const Terminal& terminal);

void warn(std::string_view message);

}  // namespace lockstep
