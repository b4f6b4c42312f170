// A CUDA kernel that augments and normalises images on the GPU in one pass. Needs no torch.
#pragma once

#include <cstdint>

#include <lockstep/data/images/augment_rows.h>

struct CUstream_st;  // a cudaStream_t points to one; null is the default stream

namespace lockstep {

// Writes what augment_rows() writes, bit for bit. All memory of the batch, and X (n, channels, height,
// width), is on the current CUDA device. Row numbers are not checked. Returns before the work is done; n may
// be 0. Throws DeviceError when the kernel cannot be started, and in a build without CUDA.
void augment_images(const AugmentedRows& batch, float* X, CUstream_st* stream);
void augment_images(const AugmentedRows& batch, uint8_t* X, CUstream_st* stream);

}  // namespace lockstep
