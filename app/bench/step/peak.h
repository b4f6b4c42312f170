// How fast the devices multiply at best: what a step's arithmetic is held against.
#pragma once

#include <vector>

#include <lockstep/parallel/training/precision.h>

namespace lockstep {

// Floating point operations a second of all devices at once, each with so many threads: the median of some
// products of large square matrices, in the type that layers compute in at this precision.
double measured_peak(const std::vector<torch::Device>& devices, int threads, Precision precision);

}  // namespace lockstep
