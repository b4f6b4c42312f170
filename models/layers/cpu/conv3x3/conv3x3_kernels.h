// Convolutions of 3 x 3 with stride 1 and a border of zeros on a CPU, with Winograd's tiles
// (conv3x3_inline.h). Images are in channels_last. Raw pointers and no includes of torch: see lanes.h.
#pragma once

#include <stdint.h>

#include <lockstep/support/bf16_type.h>

namespace lockstep {

// in and out: multiples of kChannels. x (images, height, width, in), filters (out, 3, 3, in), y (images,
// height, width, out).
struct Conv3x3Shape {
  static constexpr int kChannels = 64;
  int64_t height, width, in, out;
};

// first, ..., last - 1
struct Range {
  int64_t first, last;
};

// The kernels of one capability for images of float, double or Bf16. With Bf16 everything but x and dx is
// float: filters are rounded once, after they are transformed, and sums are not rounded. The caller owns all
// memory, which is aligned to 64 bytes; the functions named *_bytes return its size.
template <class T>
struct Conv3x3Kernels {
  using Number = Computed<T>;

  // Number of tiles of an image. The tiles of several images are numbered one image after another. Threads
  // can share the work of a function by its tiles.
  int64_t (*tiles)(const Conv3x3Shape& shape);

  int64_t (*prepared_bytes)(const Conv3x3Shape& shape);
  int64_t (*scratch_bytes)(const Conv3x3Shape& shape);
  int64_t (*sums_bytes)(const Conv3x3Shape& shape);

  // Transforms filters for convolve(), or with for_input_gradient for input_gradient(). outputs: multiples of
  // 16.
  void (*prepare)(const Number* filters, const Conv3x3Shape& shape, bool for_input_gradient, Range outputs,
                  void* prepared);

  // bias: (out) or null.
  void (*convolve)(const T* x, const void* prepared, const Number* bias, Range tiles,
                   const Conv3x3Shape& shape, void* scratch, Number* y);
  void (*input_gradient)(const Number* dy, const void* prepared, Range tiles, const Conv3x3Shape& shape,
                         void* scratch, T* dx);

  // Sets `sums` for the gradient of the filters `outputs` (multiples of kChannels) to sums over `tiles`, at
  // least one. filter_gradient() turns the sums over all tiles into dfilters (out, 3, 3, in).
  void (*filter_sums)(const T* x, const Number* dy, Range tiles, Range outputs, const Conv3x3Shape& shape,
                      void* scratch, void* sums);
  // sums: `parts` of them, sums_bytes() apart, each over other tiles. They are added in that order.
  void (*filter_gradient)(const void* sums, int64_t parts, Range outputs, const Conv3x3Shape& shape,
                          Number* dfilters);
};

}  // namespace lockstep
