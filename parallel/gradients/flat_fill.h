// Many tensors into a flat buffer: one CUDA kernel for up to 96 of them. Needs no torch.
#pragma once

#include <cstdint>
#include <span>

struct CUstream_st;  // a cudaStream_t points to one; null is the default stream

namespace lockstep {

// A tensor's numbers, and their place in the buffer. Both are on the current CUDA device.
template <class T>
struct FlatPiece {
  const void* from = nullptr;  // (size) of T, or bfloat16; null: zeros
  T* to = nullptr;             // (size)
  int64_t size = 0;
  bool from_bf16 = false;
};

// Writes 0 + each number, in T: as a sum into a buffer of zeros, where -0 becomes 0. Pieces do not overlap.
// Returns before the work is done; the list itself may go. Throws DeviceError when the kernel cannot be
// started, and in a build without CUDA.
void fill_flat(std::span<const FlatPiece<float>> pieces, CUstream_st* stream);
void fill_flat(std::span<const FlatPiece<double>> pieces, CUstream_st* stream);

}  // namespace lockstep
