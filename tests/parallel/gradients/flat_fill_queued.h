// The counter of flat_fill_queued.cpp.
#pragma once

#include <atomic>

namespace lockstep::testing {

// Calls of fill_flat().
std::atomic<int>& queued_flat_fills();

}  // namespace lockstep::testing
