#include <lockstep/support/cpu/capability.h>

#include <fmt/format.h>

#include <cstdlib>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr const char* kUnsetIt = "unset it: lockstep then chooses the best that this CPU has";

}  // namespace

bool has_capability(CpuCapability capability) {
  switch (capability) {
    case CpuCapability::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             has_capability(CpuCapability::kAvx2);
    case CpuCapability::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case CpuCapability::kPortable:
      return true;
  }
  return false;
}

CpuCapability choose_capability(const char* wanted) {
  const bool any = !wanted || !*wanted;
  for (const auto& [name, capability] : kCpuCapabilityNames) {
    if (any && has_capability(capability)) return capability;
    if (any || name != wanted) continue;
    if (has_capability(capability)) return capability;
    throw DeviceError(fmt::format("LOCKSTEP_CPU_CAPABILITY is {}, which this CPU does not have", wanted),
                      kUnsetIt);
  }
  throw UsageError(fmt::format("LOCKSTEP_CPU_CAPABILITY must be avx512, avx2 or portable, got '{}'", wanted),
                   kUnsetIt);
}

CpuCapability cpu_capability() {
  static const auto capability = choose_capability(std::getenv("LOCKSTEP_CPU_CAPABILITY"));
  return capability;
}

}  // namespace lockstep
