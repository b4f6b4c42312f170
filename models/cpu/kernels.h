// All kernels for processors.
#pragma once

#include <lockstep/models/cpu/batch_norm_passes.h>
#include <lockstep/models/cpu/conv3x3_kernels.h>
#include <lockstep/models/cpu/lenet_layers.h>
#include <lockstep/models/cpu/register_loop.h>

namespace lockstep {

enum class CpuCapability;

// As one capability has them, for numbers of type T.
template <class T>
struct CpuKernels {
  const LeNetLayers<T>* direct_lenet;
  const LeNetLayers<T>* winograd_lenet;  // by Winograd's tiles, which round a little more
  const Conv3x3Kernels<T>* conv3x3;
  const BatchNormPasses<float>* batch_norm;  // of these types whatever T is
  const BatchNormPasses<Bf16>* bf16_batch_norm;
  const BatchNormPasses<Bf16, float>* bf16_batch_norm_of_floats;
  const RegisterLoop* register_loop;  // in float
};

// Those by products of bfloat16.
struct Bf16Kernels {
  const Conv3x3Kernels<Bf16>* conv3x3;
  const RegisterLoop* register_loop;
};

// Those for what cpu_capability() says, and throws as it does; of double the portable ones, from which tests
// derive.
template <class T>
const CpuKernels<T>& cpu_kernels();

// Null where others are better or as good: they are here where cpu_capability() is AVX-512 and the processor
// multiplies bfloat16 in vectors (AVX512_BF16), but not in tiles of its own (AMX), which torch's convolutions
// then use.
const Bf16Kernels* fast_bf16_kernels();

// To be called on a processor that has the capability.
const CpuKernels<float>& cpu_kernels_of(CpuCapability capability);

// Each compiled for its capability: AVX-512 (F, BW, DQ, VL), that with AVX512_BF16, AVX2 with FMA, any
// processor.
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
const Bf16Kernels& bf16_kernels();  // the same products by other instructions, for tests everywhere
}  // namespace lanes_portable

}  // namespace lockstep
