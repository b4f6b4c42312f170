// The kernels that compute a network's layers.
#pragma once

#include <lockstep/support/choices.h>

namespace lockstep {

enum class Kernels {
  kAuto,    // lockstep's kernels where they support the layer, device and dtype, else torch's
  kDirect,  // as kAuto, but with direct sums in place of faster, less exact methods (Winograd)
  kTorch,   // torch's kernels
};

inline constexpr Choice<Kernels> kKernelsNames[] = {
    {"auto", Kernels::kAuto}, {"direct", Kernels::kDirect}, {"torch", Kernels::kTorch}};

}  // namespace lockstep
