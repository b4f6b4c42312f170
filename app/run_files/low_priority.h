// For threads that write a run's files: training comes first.
#pragma once

#include <sys/resource.h>

namespace lockstep {

// Lowers the priority of the calling thread; on Linux the others keep theirs.
inline void lower_priority() { (void)::setpriority(PRIO_PROCESS, 0, 10); }

}  // namespace lockstep
