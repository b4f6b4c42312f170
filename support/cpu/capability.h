// The instruction sets that the kernels in models/layers/cpu/ are built for, and the one this process uses.
#pragma once

#include <lockstep/support/choices.h>

namespace lockstep {

// From the most capable one to the one that every CPU has.
enum class CpuCapability {
  kAvx512,    // F, BW, DQ and VL, with AVX2 and FMA
  kAvx2,      // with FMA
  kPortable,  // vectors of four floats, which every x86-64 CPU has
};

inline constexpr Choice<CpuCapability> kCpuCapabilityNames[] = {{"avx512", CpuCapability::kAvx512},
                                                                {"avx2", CpuCapability::kAvx2},
                                                                {"portable", CpuCapability::kPortable}};

// Returns true if this CPU has the capability.
bool has_capability(CpuCapability capability);

// The capability named `wanted`; if null or empty, the best one that this CPU has. Throws UsageError if the
// name is unknown and DeviceError if the CPU lacks the capability.
CpuCapability choose_capability(const char* wanted);

// The capability of this process: choose_capability() of the environment variable LOCKSTEP_CPU_CAPABILITY.
// Reads the variable in the first call only. Thread-safe. usable_devices() calls it, so a wrong value is
// reported before anything is computed.
CpuCapability cpu_capability();

}  // namespace lockstep
