// Which of the kernels in models/cpu/ this processor can run.
#pragma once

#include <lockstep/support/choices.h>

namespace lockstep {

// From the most capable to what every processor has.
enum class CpuCapability {
  kAvx512,    // F, BW, DQ and VL, with AVX2 and FMA
  kAvx2,      // with FMA
  kPortable,  // vectors of four, as every x86-64 processor has them
};

inline constexpr Choice<CpuCapability> kCpuCapabilityNames[] = {{"avx512", CpuCapability::kAvx512},
                                                                {"avx2", CpuCapability::kAvx2},
                                                                {"portable", CpuCapability::kPortable}};

bool has_capability(CpuCapability capability);

// The one of this name, or the most capable one that this processor has where `wanted` is null. Throws
// UsageError where that is none of the names, and DeviceError where the processor lacks it.
CpuCapability choose_capability(const char* wanted);

// What the environment variable LOCKSTEP_CPU_CAPABILITY, if it is set, makes choose_capability() choose or
// throw. It is read at the first call and no more, from any thread: the process computes by one capability.
// usable_devices() calls it, so that a value that is wrong is known before anything is computed.
CpuCapability cpu_capability();

}  // namespace lockstep
