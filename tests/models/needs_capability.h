// For tests of the kernels of one capability. NEEDS_CAPABILITY(capability) skips the test case if the CPU
// lacks the capability. Use it in a function that returns void.
#pragma once

#include <string>

#include <lockstep/support/cpu/capability.h>
#include <lockstep/tests/skip.h>

#define NEEDS_CAPABILITY(capability)                                                          \
  if (!::lockstep::has_capability(capability)) {                                              \
    SKIP_CASE("this CPU has no " +                                                            \
              std::string(::lockstep::name_of(::lockstep::kCpuCapabilityNames, capability))); \
  }                                                                                           \
  static_assert(true)
