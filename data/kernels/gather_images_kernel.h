// The kernel of gather_images.h; see support/cuda/kernel.h.
#pragma once

#include <lockstep/support/cuda/kernel.h>

namespace lockstep {

struct GatherImages {
  const uint8_t* images;  // (size, pixels)
  const int64_t* labels;  // (size)
  const int64_t* rows;    // (n)
  int64_t n;
  int64_t pixels;
  float* X;    // (n, pixels)
  int64_t* y;  // (n)
};

// A thread computes N neighbouring pixels of one image. With 4 a warp loads 128 bytes and stores 512 in one
// piece; with more its stores would have gaps.
template <int N>
__global__ void gather_images_kernel(GatherImages batch) {
  const int64_t groups = batch.pixels / N;  // in an image
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t i = thread / groups;
  const int64_t group = thread % groups;
  if (i >= batch.n) return;
  const int64_t row = batch.rows[i];
  if (group == 0) batch.y[i] = batch.labels[row];

  const auto bytes = reinterpret_cast<const Vector<uint8_t, N>*>(batch.images)[row * groups + group];
  Vector<float, N> values;
  for (int k = 0; k < N; ++k) values.values[k] = static_cast<float>(bytes.values[k]) / 255.0f;
  reinterpret_cast<Vector<float, N>*>(batch.X)[thread] = values;
}

template <class Launch>
void gather_images_with(const Launch& launch, const GatherImages& batch) {
  constexpr int kThreads = 256;
  constexpr int kPixels = 4;
  if (batch.n == 0 || batch.pixels == 0) return;
  const bool whole =
      batch.pixels % kPixels == 0 && is_aligned(batch.images, kPixels) && is_aligned(batch.X, kVectorBytes);
  const int64_t threads = batch.n * batch.pixels / (whole ? kPixels : 1);
  const dim3 grid{static_cast<unsigned>(ceil_div(threads, kThreads)), 1, 1};
  launch(whole ? gather_images_kernel<kPixels> : gather_images_kernel<1>, grid, dim3{kThreads, 1, 1}, batch);
}

}  // namespace lockstep
