// In which order the launches of *_emulated.cpp run their threads. No result may depend on it.
#pragma once

#include <lockstep/tests/support/cuda_emulation.h>

namespace lockstep::testing {

inline ThreadOrder emulated_order = ThreadOrder::kForward;

}  // namespace lockstep::testing
