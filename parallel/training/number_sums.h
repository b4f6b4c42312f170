// Adds the results of one step to sums that a GPU keeps: one CUDA kernel. Needs no torch.
#pragma once

#include <cstdint>

struct CUstream_st;  // a cudaStream_t points to one; null is the default stream

namespace lockstep {

enum class NumberType : int32_t { kFloat, kDouble, kInt64 };

// One number in device memory.
struct DeviceNumber {
  const void* at = nullptr;
  NumberType type = NumberType::kDouble;
};

// All memory is on the current CUDA device.
struct NumberSums {
  static constexpr int kMost = 32;

  DeviceNumber numbers[kMost];
  int count = 0;                // of numbers, at least 1
  double* sums = nullptr;       // (count): each has its number added
  double* first_bad = nullptr;  // (): becomes min(*first_bad, *step) if the first number is NaN or infinite
  const double* step = nullptr;
};

// Returns before the work is done. Throws DeviceError when the kernel cannot be started, and in a build
// without CUDA.
void add_numbers(const NumberSums& numbers, CUstream_st* stream);

}  // namespace lockstep
