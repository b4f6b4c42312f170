#define LOCKSTEP_LANES 8
#define LOCKSTEP_LANES_NAMESPACE lanes_avx2
#include <lockstep/models/layers/cpu/kernels_inline.h>

namespace lockstep::lanes_avx2 {

const CpuKernels<float>& kernels() { return kKernels<float>; }

}  // namespace lockstep::lanes_avx2
