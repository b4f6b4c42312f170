// For tests of the kernels of one capability: NEEDS_CAPABILITY(capability) skips the case where the processor
// does not have it. In a function that returns nothing.
#pragma once

#include <string>

#include <lockstep/support/cpu_capability.h>
#include <lockstep/tests/skip.h>

#define NEEDS_CAPABILITY(capability)                                                          \
  if (!::lockstep::has_capability(capability)) {                                              \
    SKIP_CASE("this processor has no " +                                                      \
              std::string(::lockstep::name_of(::lockstep::kCpuCapabilityNames, capability))); \
  }                                                                                           \
  static_assert(true)
