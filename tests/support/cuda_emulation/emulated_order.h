// The thread order of the launches in *_emulated.cpp. No result may depend on it.
#pragma once

#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

namespace lockstep::testing {

inline ThreadOrder emulated_order = ThreadOrder::kForward;

}  // namespace lockstep::testing
