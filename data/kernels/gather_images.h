// A CUDA kernel that makes a batch from images on the GPU. Needs no torch.
#pragma once

#include <cstdint>

struct CUstream_st;  // a cudaStream_t points to one; null is the default stream

namespace lockstep {

// Computes X[i][p] = images[rows[i]][p] / 255, rounded as IEEE division is, and y[i] = labels[rows[i]].
// images (any number, pixels), labels (as many), rows (n), X (n, pixels) and y (n) are on the current CUDA
// device. Row numbers are not checked, since a check in a kernel would end the CUDA context. Returns before
// the work is done; n may be 0. Throws DeviceError when the kernel cannot be started, and in a build without
// CUDA.
void gather_images(const uint8_t* images, const int64_t* labels, const int64_t* rows, int64_t n,
                   int64_t pixels, float* X, int64_t* y, CUstream_st* stream);

}  // namespace lockstep
