#define LOCKSTEP_LANES 16
#define LOCKSTEP_LANES_NAMESPACE lanes_avx512
#include <lockstep/models/layers/cpu/kernels_inline.h>

namespace lockstep::lanes_avx512 {

const CpuKernels<float>& kernels() { return kKernels<float>; }

}  // namespace lockstep::lanes_avx512
