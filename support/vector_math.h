// Torch's functions of numbers (sqrt, exp, tanh, erf and others) are MKL's on CPUs.
#pragma once

namespace lockstep {

// Has MKL choose its kernels, once per process. MKL does so in its first such call, without a lock: a thread
// that comes meanwhile may get square roots that are right to 13 bits only, and a replica that computes with
// them has other weights than the rest. Call it before several threads compute.
void choose_vector_kernels();

}  // namespace lockstep
