// The peak arithmetic of the devices, the reference for a step's MFU.
#pragma once

#include <vector>

#include <lockstep/parallel/training/precision.h>

namespace lockstep {

// Floating-point operations per second of all devices at once, each with `threads` threads: the median of
// several matrix products of large squares in the type that layers compute in at this precision.
double measured_peak(const std::vector<torch::Device>& devices, int threads, Precision precision);

}  // namespace lockstep
