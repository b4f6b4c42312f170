// Only convolutions in bfloat16: everything else computes in float, with the instructions of
// kernels_avx512.cpp.
#define LOCKSTEP_LANES 16
#define LOCKSTEP_LANES_NAMESPACE lanes_avx512_bf16
#define LOCKSTEP_BF16_PRODUCTS
#include <lockstep/models/layers/cpu/conv3x3/conv3x3_inline.h>
#include <lockstep/models/layers/cpu/kernels.h>
#include <lockstep/models/layers/cpu/register_loop_inline.h>

namespace lockstep::lanes_avx512_bf16 {

const Bf16Kernels& kernels() {
  static constexpr Bf16Kernels kernels{&kConv3x3Kernels<Bf16>, &kBf16RegisterLoop};
  return kernels;
}

}  // namespace lockstep::lanes_avx512_bf16
