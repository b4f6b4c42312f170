// Writes a trace in Chrome's trace format, for chrome://tracing and ui.perfetto.dev.
#pragma once

#include <string>
#include <vector>

#include <lockstep/parallel/timing/trace.h>
#include <lockstep/support/files/atomic_file.h>
#include <lockstep/support/notice.h>

namespace lockstep {

// Writes each replica as a process with one thread per track, times in microseconds, and puts the file in
// place. Tells `notice` when the trace has dropped events. names: names of the ranks' processes; the default
// is "replica N". Throws OutputError.
void write_chrome_trace(const Trace& trace, AtomicFile& file, const Notice& notice = {},
                        const std::vector<std::string>& names = {});

}  // namespace lockstep
