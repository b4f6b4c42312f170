#include <lockstep/models/layers/cpu/kernels.h>

#include <lockstep/support/cpu/capability.h>

namespace lockstep {

const CpuKernels<float>& cpu_kernels_of(CpuCapability capability) {
  switch (capability) {
    case CpuCapability::kAvx512:
      return lanes_avx512::kernels();
    case CpuCapability::kAvx2:
      return lanes_avx2::kernels();
    case CpuCapability::kPortable:
      break;
  }
  return lanes_portable::kernels();
}

const Bf16Kernels* fast_bf16_kernels() {
  const bool fast = cpu_capability() == CpuCapability::kAvx512 && __builtin_cpu_supports("avx512bf16") &&
                    !__builtin_cpu_supports("amx-bf16");
  return fast ? &lanes_avx512_bf16::kernels() : nullptr;
}

template <>
const CpuKernels<float>& cpu_kernels<float>() {
  return cpu_kernels_of(cpu_capability());
}

template <>
const CpuKernels<double>& cpu_kernels<double>() {
  return lanes_portable::kernels_of_double();
}

}  // namespace lockstep
