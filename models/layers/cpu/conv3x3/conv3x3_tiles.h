// Places of the pixels of Winograd's tiles in images of (height, width, channels).
#pragma once

#include <lockstep/models/layers/cpu/conv3x3/conv3x3_kernels.h>
#include <lockstep/models/layers/cpu/lanes.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

// Division of one side of an image into tiles of at most kOutputs outputs. If the side is not a multiple of
// kOutputs, the last tiles are shorter, and lengths differ by one at most: 14 is 4 + 4 + 3 + 3. A short tile
// leaves out the product at infinity, which only the last of kOutputs outputs needs (winograd.h): three
// outputs of a filter with three taps take five products, not six.
template <int kOutputs>
struct Conv3x3Side {
  explicit Conv3x3Side(int64_t size) : tiles((size + kOutputs - 1) / kOutputs) {
    const int64_t missing = tiles * kOutputs - size;
    most = kOutputs - missing / tiles;
    with_most = tiles - missing % tiles;
  }

  int64_t outputs(int64_t tile) const { return tile < with_most ? most : most - 1; }
  int64_t first(int64_t tile) const { return tile * most - (tile < with_most ? 0 : tile - with_most); }

  int64_t tiles;
  int64_t most;       // outputs of each of the first with_most tiles
  int64_t with_most;  // the others have one output less
};

// Tiles of kOutputs x kOutputs outputs in all images.
template <int kOutputs>
struct Conv3x3Tiles {
  const Conv3x3Shape& shape;
  Conv3x3Side<kOutputs> down{shape.height}, across{shape.width};

  struct Place {
    int64_t image, row, column;
  };

  int64_t of_an_image() const { return down.tiles * across.tiles; }
  Place place(int64_t tile) const {
    const int64_t rows = tile / across.tiles, image = rows / down.tiles;
    return {image, rows - image * down.tiles, tile - rows * across.tiles};
  }

  // Calls use(i, offset of the pixel) for the size x size pixels of a tile, which begin `border` pixels above
  // and left of its outputs. The offset is in pixels; it is -1 for pixels that a short tile does not have and
  // for those outside the image.
  template <class Use>
  void pixels(int64_t tile, int size, int border, const Use& use) const {
    const Place at = place(tile);
    const int64_t top = down.first(at.row) - border, left = across.first(at.column) - border;
    const int64_t bottom = smaller(top + size - kOutputs + down.outputs(at.row), shape.height);
    const int64_t right = smaller(left + size - kOutputs + across.outputs(at.column), shape.width);
    for (int i = 0; i < size * size; ++i) {
      const int64_t y = top + i / size, x = left + i % size;
      const bool inside = y >= 0 && y < bottom && x >= 0 && x < right;
      use(i, inside ? (at.image * shape.height + y) * shape.width + x : -1);
    }
  }

 private:
  static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
};

// Some tiles, ordered so that the tiles with all their rows are consecutive, and so are those with all their
// columns.
template <int kOutputs, int kMaxTiles>
struct Conv3x3Block {
  Conv3x3Block(const Conv3x3Tiles<kOutputs>& tiles, Range range) {
    int kinds[kMaxTiles];  // 0: all rows; 1: all rows and columns; 2: all columns; 3: neither
    int64_t of_kind[4] = {};
    for (int64_t i = range.first; i < range.last; ++i) {
      const auto at = tiles.place(i);
      const bool rows = tiles.down.outputs(at.row) == kOutputs;
      const bool columns = tiles.across.outputs(at.column) == kOutputs;
      const int kind = columns ? (rows ? 1 : 2) : (rows ? 0 : 3);
      kinds[i - range.first] = kind;
      ++of_kind[kind];
    }
    int64_t next[4] = {0, of_kind[0], of_kind[0] + of_kind[1], of_kind[0] + of_kind[1] + of_kind[2]};
    whole_rows = {0, next[2]};
    whole_columns = {next[1], next[3]};
    for (int64_t i = range.first; i < range.last; ++i) tile[next[kinds[i - range.first]]++] = i;
    count = range.last - range.first;
  }

  // The tiles that have a product in a slice whose rows or columns are at infinity.
  Range with(bool rows_at_infinity, bool columns_at_infinity) const {
    if (rows_at_infinity && columns_at_infinity) return {whole_columns.first, whole_rows.last};
    return rows_at_infinity ? whole_rows : columns_at_infinity ? whole_columns : Range{0, count};
  }

  int64_t tile[kMaxTiles];
  int64_t count;
  Range whole_rows, whole_columns;
};

template <class Value>
inline constexpr bool kReadOnly = false;
template <class Value>
inline constexpr bool kReadOnly<const Value> = true;

// Addresses of the kSize x kSize pixels of kTiles tiles.
template <class Value, int kOutputs, int kSize, int kTiles>
struct Conv3x3Pixels {
  Value* at[kTiles][kSize * kSize];

  // Prefetches kLanes channels of the columns that the tile to the left does not have. Rows of a tile lie as
  // far apart as an image is wide, which a CPU does not predict in time: prefetching the next tile while one
  // is computed takes 20 % off a convolution of 28 x 28 images.
  //
  // Always inlined: otherwise GCC sees a function without an effect and drops its calls.
  [[gnu::always_inline]] void prefetch(int64_t c) const {
    for (const auto& tile : at) {
#pragma GCC unroll 36
      for (int i = 0; i < kSize * kSize; ++i) {
        if (i % kSize >= kSize - kOutputs) __builtin_prefetch(tile[i] + c, /*to write=*/!kReadOnly<Value>);
      }
    }
  }
};

// Images whose tiles are read or written. Tiles begin `border` pixels above and left of their outputs. Pixels
// outside the image are at `elsewhere`.
template <class Value, int kOutputs>
struct Conv3x3Images {
  Value* values;
  const Conv3x3Tiles<kOutputs>& tiles;
  int64_t channels;
  int border;
  Value* elsewhere;

  // Addresses of kTiles tiles of a block from tile `first` on. Behind its last tile all pixels are elsewhere.
  template <int kMaxTiles, int kSize, int kTiles>
  void find(const Conv3x3Block<kOutputs, kMaxTiles>& block, int64_t first,
            Conv3x3Pixels<Value, kOutputs, kSize, kTiles>* pixels) const {
    for (int i = 0; i < kTiles; ++i) {
      const bool in_block = first + i < block.count;
      tiles.pixels(in_block ? block.tile[first + i] : 0, kSize, border, [&](int pixel, int64_t at) {
        pixels->at[i][pixel] = in_block && at >= 0 ? values + at * channels : elsewhere;
      });
    }
  }
};

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
