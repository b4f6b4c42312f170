#define LOCKSTEP_LANES 4
#define LOCKSTEP_LANES_NAMESPACE lanes_portable
#include <lockstep/models/layers/cpu/kernels_inline.h>

namespace lockstep::lanes_portable {

const CpuKernels<float>& kernels() { return kKernels<float>; }
const CpuKernels<double>& kernels_of_double() { return kKernels<double>; }
const Bf16Kernels& bf16_kernels() {
  static constexpr Bf16Kernels kernels{&kConv3x3Kernels<Bf16>, &kBf16RegisterLoop};
  return kernels;
}

}  // namespace lockstep::lanes_portable
