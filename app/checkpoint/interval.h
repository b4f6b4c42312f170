// How often a run writes a checkpoint: --checkpoint-every.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// One of the three is not 0.
struct CheckpointInterval {
  int64_t steps = 0;
  int64_t epochs = 0;
  double seconds = 0;
};

// Parses "500" (steps), "60s" or "2epochs". Throws UsageError.
CheckpointInterval parse_interval(const std::string& text);

}  // namespace lockstep
