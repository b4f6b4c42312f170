// All CPU kernels.
#pragma once

#include <lockstep/models/layers/cpu/batch_norm_passes.h>
#include <lockstep/models/layers/cpu/conv3x3/conv3x3_kernels.h>
#include <lockstep/models/layers/cpu/lenet/layers.h>
#include <lockstep/models/layers/cpu/register_loop.h>

namespace lockstep {

enum class CpuCapability;

// The kernels of one capability, for numbers of type T.
template <class T>
struct CpuKernels {
  const LeNetLayers<T>* direct_lenet;
  const LeNetLayers<T>* winograd_lenet;  // with Winograd's tiles, which round a little more
  const Conv3x3Kernels<T>* conv3x3;
  const BatchNormPasses<float>* batch_norm;  // these do not depend on T
  const BatchNormPasses<Bf16>* bf16_batch_norm;
  const BatchNormPasses<Bf16, float>* bf16_batch_norm_of_floats;
  const RegisterLoop* register_loop;  // in float
};

// The kernels with matrix products in bfloat16.
struct Bf16Kernels {
  const Conv3x3Kernels<Bf16>* conv3x3;
  const RegisterLoop* register_loop;
};

// Returns the kernels for cpu_capability(), and throws as it does. double has only the portable ones, from
// which tests take derivatives.
template <class T>
const CpuKernels<T>& cpu_kernels();

// Returns null if others are as good or better. They are used if cpu_capability() is AVX-512 and the CPU
// multiplies bfloat16 in vectors (AVX512_BF16), but not in tiles (AMX), which torch's convolutions use.
const Bf16Kernels* fast_bf16_kernels();

// The kernels of this capability, which the CPU must have.
const CpuKernels<float>& cpu_kernels_of(CpuCapability capability);

// Each is compiled for its capability: AVX-512 (F, BW, DQ, VL), the same with AVX512_BF16, AVX2 with FMA, any
// CPU.
namespace lanes_avx512 {
const CpuKernels<float>& kernels();
}
namespace lanes_avx512_bf16 {
const Bf16Kernels& kernels();
}
namespace lanes_avx2 {
const CpuKernels<float>& kernels();
}
namespace lanes_portable {
const CpuKernels<float>& kernels();
const CpuKernels<double>& kernels_of_double();
const Bf16Kernels& bf16_kernels();  // the same with other instructions, for tests on any CPU
}  // namespace lanes_portable

}  // namespace lockstep
