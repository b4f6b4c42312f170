// Adds up the phases of traced steps.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/parallel/timing/trace.h>

namespace lockstep {

// Seconds per step, means over replicas and steps.
struct TracedPhases {
  double data = 0;  // gathering the batch's rows
  double forward = 0;
  double backward = 0;
  double sync = 0;  // from the end of backward to the update: sums that backward did not hide
  double update = 0;
};

// tracks[r]: rank r's compute track, Trace::Track::kCompute or kDeviceCompute. steps: number of steps in the
// trace.
TracedPhases phases_of(std::vector<Trace::Event> events, const std::vector<Trace::Track>& tracks,
                       int64_t steps);

}  // namespace lockstep
