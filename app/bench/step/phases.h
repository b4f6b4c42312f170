// What a step consists of, from a trace of it.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/parallel/timing/trace.h>

namespace lockstep {

// Seconds a step, means over replicas and steps.
struct TracedPhases {
  double data = 0;  // gathering the rows
  double forward = 0;
  double backward = 0;
  double sync = 0;  // between the end of backward and the update: sums that backward did not hide
  double update = 0;
};

// tracks[r]: where rank r's computing is in the trace, Trace::Track::kCompute or kDeviceCompute. steps: how
// many the trace holds.
TracedPhases phases_of(std::vector<Trace::Event> events, const std::vector<Trace::Track>& tracks,
                       int64_t steps);

}  // namespace lockstep
