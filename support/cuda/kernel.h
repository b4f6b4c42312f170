// Shared parts of the headers with CUDA kernels (*_kernel.h). nvcc compiles each of them for its .cu file;
// the tests compile it as plain C++ after including <lockstep/tests/support/cuda_emulation/cuda_emulation.h>.
//
// Such a header has its kernels and a function that chooses the grid and calls
// `launch(kernel, grid, block, arguments...)`: CudaLaunch (launch.h) in the product, an emulation in the
// tests. The .cu file only adds the stream.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

struct CUstream_st;  // a cudaStream_t points to one; null is the default stream

namespace lockstep {

inline constexpr int64_t kVectorBytes = 16;  // the longest load of one thread

// N consecutive values in memory, aligned so that few instructions load and store them.
template <class T, int N>
struct alignas(sizeof(T) * N < kVectorBytes ? sizeof(T) * N : kVectorBytes) Vector {
  T values[N];
};

inline bool is_aligned(const void* pointer, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0;
}

LOCKSTEP_HOST_DEVICE constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace lockstep
