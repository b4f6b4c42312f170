// A CpuKernels table for the capability whose source includes this header.
#pragma once

#include <lockstep/models/layers/cpu/batch_norm_inline.h>
#include <lockstep/models/layers/cpu/conv3x3/conv3x3_inline.h>
#include <lockstep/models/layers/cpu/kernels.h>
#include <lockstep/models/layers/cpu/lenet/layers_inline.h>
#include <lockstep/models/layers/cpu/register_loop_inline.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

template <class T>
inline constexpr CpuKernels<T> kKernels = {.direct_lenet = &kDirectLeNetLayers<T>,
                                           .winograd_lenet = &kWinogradLeNetLayers<T>,
                                           .conv3x3 = &kConv3x3Kernels<T>,
                                           .batch_norm = &kBatchNormPasses<float>,
                                           .bf16_batch_norm = &kBatchNormPasses<Bf16>,
                                           .bf16_batch_norm_of_floats = &kBatchNormPasses<Bf16, float>,
                                           .register_loop = &kRegisterLoop};

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
