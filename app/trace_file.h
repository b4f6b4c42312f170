// A trace as Chrome's trace format, for chrome://tracing and ui.perfetto.dev.
#pragma once

#include <string>
#include <vector>

#include <lockstep/parallel/trace.h>
#include <lockstep/support/new_file.h>

namespace lockstep {

// One process a replica with two threads, computing and communication; times in microseconds. Warns where the
// trace was full. names: the ranks' processes; those beyond them are "replica N". The file is then in place.
void write_chrome_trace(const Trace& trace, NewFile& file, const std::vector<std::string>& names = {});

}  // namespace lockstep
