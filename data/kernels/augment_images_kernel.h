// The kernel of augment_images.h; see support/cuda/kernel.h.
#pragma once

#include <lockstep/data/images/augment_rows.h>
#include <lockstep/support/cuda/kernel.h>

namespace lockstep {

inline constexpr int kAugmentThreads = 256;
inline constexpr int kAugmentPixels = 4096;      // of a block at a time: each thread computes 16
inline constexpr int64_t kMostGridRows = 65535;  // of CUDA

// The first thread of a block draws for its image, so that no thread waits for its neighbours' draws.
template <class Out>
__global__ void augment_images_kernel(AugmentedRows batch, Out* X) {
  __shared__ AugmentedView shared;
  const ImageSizes shape = batch.shape;
  const int64_t i = blockIdx.x;
  const int64_t row = batch.rows[i];
  if (threadIdx.x == 0) shared = draw_view(batch.draws, shape, row);
  __syncthreads();
  const AugmentedView view = shared;

  const int64_t plane = int64_t{shape.height} * shape.width;
  const int64_t size = plane * shape.channels;
  const uint8_t* image = batch.images + (batch.by_row ? row : i) * size;
  for (int64_t begin = int64_t{blockIdx.y} * kAugmentPixels; begin < size;
       begin += int64_t{gridDim.y} * kAugmentPixels) {
    const int64_t end = begin + kAugmentPixels < size ? begin + kAugmentPixels : size;
    for (int64_t p = begin + threadIdx.x; p < end; p += blockDim.x) {
      const int channel = static_cast<int>(p / plane);
      const int place = static_cast<int>(p % plane);
      const uint8_t pixel =
          augmented_pixel(view, shape, image + channel * plane, place / shape.width, place % shape.width);
      if constexpr (sizeof(Out) == 1) {
        X[i * size + p] = pixel;
      } else {
        X[i * size + p] = batch.values[256 * channel + pixel];
      }
    }
  }
}

template <class Out, class Launch>
void augment_images_with(const Launch& launch, const AugmentedRows& batch, Out* X) {
  const int64_t size = int64_t{batch.shape.channels} * batch.shape.height * batch.shape.width;
  if (batch.n == 0 || size == 0) return;
  const int64_t parts = ceil_div(size, kAugmentPixels);
  const dim3 grid{static_cast<unsigned>(batch.n),
                  static_cast<unsigned>(parts < kMostGridRows ? parts : kMostGridRows), 1};
  launch(augment_images_kernel<Out>, grid, dim3{kAugmentThreads, 1, 1}, batch, X);
}

}  // namespace lockstep
