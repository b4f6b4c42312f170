// A loop that measures how fast a core multiplies and adds without waiting for memory. Benchmarks compare
// layers with it.
#pragma once

#include <stdint.h>

namespace lockstep {

// Many independent chains of multiplications and additions in registers.
struct RegisterLoop {
  int64_t operations;            // per round; a multiplication and an addition are two
  float (*run)(int64_t rounds);  // returns the sum, so that the compiler keeps the loop
};

}  // namespace lockstep
