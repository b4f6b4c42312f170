// A trace as Chrome's trace format, for chrome://tracing and ui.perfetto.dev.
#pragma once

#include <string>
#include <vector>

#include <lockstep/parallel/timing/trace.h>
#include <lockstep/support/atomic_file.h>
#include <lockstep/support/notice.h>

namespace lockstep {

// Writes each replica as a process with a thread per track, times in microseconds, and puts the file in
// place. Calls `notice` when the trace was full. names: the ranks' processes; ranks beyond them are "replica
// N". Throws OutputError.
void write_chrome_trace(const Trace& trace, AtomicFile& file, const Notice& notice = {},
                        const std::vector<std::string>& names = {});

}  // namespace lockstep
