// A trace as Chrome's trace format, for chrome://tracing and ui.perfetto.dev.
#pragma once

#include <lockstep/app/output_file.h>
#include <lockstep/parallel/trace.h>

namespace lockstep {

// One process a replica with two threads, computing and communication; times in microseconds. Warns where the
// trace was full.
void write_chrome_trace(const Trace& trace, OutputFile& file);

}  // namespace lockstep
