// How fast a core multiplies and adds when nothing keeps it waiting: what the time of a layer is held
// against.
#pragma once

#include <stdint.h>

namespace lockstep {

// Products and sums that stay in registers, many chains of them side by side.
struct RegisterLoop {
  int64_t operations;            // of a round: a multiplication and an addition are two
  float (*run)(int64_t rounds);  // returns what was summed, so that it cannot be left out
};

}  // namespace lockstep
