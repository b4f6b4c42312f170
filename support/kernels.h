// Whose kernels a network's layers are computed by.
#pragma once

#include <lockstep/support/choices.h>

namespace lockstep {

enum class Kernels {
  kAuto,    // ours where there are any for the layer, device and type
  kDirect,  // as kAuto, and direct sums where we have others
  kTorch,   // torch's
};

inline constexpr Choice<Kernels> kKernelsNames[] = {
    {"auto", Kernels::kAuto}, {"direct", Kernels::kDirect}, {"torch", Kernels::kTorch}};

}  // namespace lockstep
