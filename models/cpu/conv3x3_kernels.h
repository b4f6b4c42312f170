// Convolutions of 3 x 3 with stride 1 and a border of zeros, on a processor, by Winograd's tiles
// (conv3x3_inline.h): images in channels_last. Raw pointers and no includes of torch: see lanes.h.
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

// From first to before last.
struct Range {
  int64_t first, last;
};

// The kernels that one capability has for images of float, double or Bf16. All but x and dx is float with the
// last, too: filters are rounded once, after they are transformed, and sums are not: who takes them rounds
// what it makes of them. All memory is the caller's, its size in bytes is what the functions of that name
// say, and it is aligned to 64 bytes.
template <class T>
struct Conv3x3Kernels {
  using Number = Computed<T>;

  // Tiles of an image; those of several images are numbered one after the other. Threads can share the work
  // of a function by its tiles.
  int64_t (*tiles)(const Conv3x3Shape& shape);

  int64_t (*prepared_bytes)(const Conv3x3Shape& shape);
  int64_t (*scratch_bytes)(const Conv3x3Shape& shape);
  int64_t (*sums_bytes)(const Conv3x3Shape& shape);

  // Filters as convolve() reads them, or with for_input_gradient as input_gradient() does. outputs: multiples
  // of 16.
  void (*prepare)(const Number* filters, const Conv3x3Shape& shape, bool for_input_gradient, Range outputs,
                  void* prepared);

  // bias (out) or null.
  void (*convolve)(const T* x, const void* prepared, const Number* bias, Range tiles,
                   const Conv3x3Shape& shape, void* scratch, Number* y);
  void (*input_gradient)(const Number* dy, const void* prepared, Range tiles, const Conv3x3Shape& shape,
                         void* scratch, T* dx);

  // The gradient of some filters (outputs: multiples of kChannels) over some tiles, at least one, before
  // filter_gradient() makes dfilters (out, 3, 3, in) of the sums over all tiles.
  void (*filter_sums)(const T* x, const Number* dy, Range tiles, Range outputs, const Conv3x3Shape& shape,
                      void* scratch, void* sums);
  // sums: `parts` of them, each of its own tiles, lying apart bytes from each other; they are added in that
  // order.
  void (*filter_gradient)(const void* sums, int64_t parts, Range outputs, const Conv3x3Shape& shape,
                          Number* dfilters);
};

}  // namespace lockstep
