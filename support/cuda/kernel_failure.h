// A kernel's way to end where going on would give wrong numbers.
#pragma once

#ifdef __CUDACC__

// CUDA's function behind assert(), which a release build does not declare.
extern "C" __host__ __device__ void __assert_fail(const char* assertion, const char* file, unsigned int line,
                                                  const char* function) noexcept
    __attribute__((__noreturn__));

namespace lockstep {

// Ends the GPU's work with the error "device-side assert triggered" (710), as torch's kernels do, and prints
// the words. The tests' emulation of a GPU throws instead.
__device__ inline void fail_in_kernel(const char* words) {
  __assert_fail(words, "a kernel of lockstep", 0, "");
}

}  // namespace lockstep

#endif
