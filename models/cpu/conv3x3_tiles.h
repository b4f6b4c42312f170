// Where the pixels of Winograd's tiles are in images of (height, width, channels).
#pragma once

#include <lockstep/models/cpu/conv3x3_kernels.h>
#include <lockstep/models/cpu/lanes.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

// Tiles of kOutputs x kOutputs outputs, of all images.
template <int kOutputs>
struct Conv3x3Tiles {
  const Conv3x3Shape& shape;
  int64_t down = (shape.height + kOutputs - 1) / kOutputs, across = (shape.width + kOutputs - 1) / kOutputs;

  int64_t of_an_image() const { return down * across; }

  // Calls use(i, offset of the pixel) for the size x size pixels of a tile that begin `border` above and left
  // of its outputs; -1 for those outside of the image. Offsets are in pixels.
  template <class Use>
  void pixels(int64_t tile, int size, int border, const Use& use) const {
    const int64_t image = tile / of_an_image(), at = tile % of_an_image();
    const int64_t top = at / across * kOutputs - border, left = at % across * kOutputs - border;
    for (int i = 0; i < size * size; ++i) {
      const int64_t y = top + i / size, x = left + i % size;
      const bool inside = y >= 0 && y < shape.height && x >= 0 && x < shape.width;
      use(i, inside ? (image * shape.height + y) * shape.width + x : -1);
    }
  }
};

template <class Value>
inline constexpr bool kReadOnly = false;
template <class Value>
inline constexpr bool kReadOnly<const Value> = true;

// Where the kSize x kSize pixels of neighbouring tiles are.
template <class Value, int kOutputs, int kSize, int kTiles>
struct Conv3x3Pixels {
  Value* at[kTiles][kSize * kSize];

  // Asks for kLanes channels of the columns that the tiles to the left do not have too. Rows of a tile lie as
  // far apart as an image is wide, which a processor does not guess in time: to ask for the next tile's while
  // one is computed takes 20 % off a convolution of 28 x 28 images.
  //
  // Always inlined, or else GCC sees a function without an effect and leaves its calls out.
  [[gnu::always_inline]] void prefetch(int64_t c) const {
    for (const auto& tile : at) {
#pragma GCC unroll 36
      for (int i = 0; i < kSize * kSize; ++i) {
        if (i % kSize >= kSize - kOutputs) __builtin_prefetch(tile[i] + c, /*to write=*/!kReadOnly<Value>);
      }
    }
  }
};

// Images of which tiles are read or written. Tiles begin `border` pixels above and left of their outputs;
// what of them is outside of the image is at `elsewhere`.
template <class Value, int kOutputs>
struct Conv3x3Images {
  Value* values;
  const Conv3x3Tiles<kOutputs>& tiles;
  int64_t channels;
  int border;
  Value* elsewhere;

  // kTiles from the first on; those of them from `last` on are all elsewhere.
  template <int kSize, int kTiles>
  void find(int64_t first, int64_t last, Conv3x3Pixels<Value, kOutputs, kSize, kTiles>* pixels) const {
    for (int tile = 0; tile < kTiles; ++tile) {
      tiles.pixels(first + tile, kSize, border, [&](int i, int64_t at) {
        pixels->at[tile][i] = at >= 0 && first + tile < last ? values + at * channels : elsewhere;
      });
    }
  }
};

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
