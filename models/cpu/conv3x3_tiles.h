// Where the pixels of Winograd's tiles are in images of (height, width, channels).
#pragma once

#include <lockstep/models/cpu/conv3x3_kernels.h>
#include <lockstep/models/cpu/lanes.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

// How one side of an image is cut into tiles of kOutputs. What is missing to a multiple of that is missing to
// the last tiles, to each the same or one more: 14 is 4 + 4 + 3 + 3. A short tile leaves out the product at
// infinity, which is for the last of kOutputs alone (winograd.h): three outputs of a filter with three taps
// are five products, not six.
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
  int64_t most;       // outputs, of so many tiles
  int64_t with_most;  // while the others have one less
};

// Tiles of kOutputs x kOutputs outputs, of all images.
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

  // Calls use(i, offset of the pixel) for the size x size pixels of a tile that begin `border` above and left
  // of its outputs; -1 for those that a short tile does not have and those outside of the image. Offsets are
  // in pixels.
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

// Some tiles, in an order in which those are neighbours that have all their rows, and those that have all
// their columns.
template <int kOutputs, int kMost>
struct Conv3x3Block {
  Conv3x3Block(const Conv3x3Tiles<kOutputs>& tiles, Range range) {
    int kinds[kMost];  // of four: all rows; all rows and columns; all columns; neither
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

  // Those that have a product for a slice, whose rows and columns may be at infinity.
  Range with(bool rows_at_infinity, bool columns_at_infinity) const {
    if (rows_at_infinity && columns_at_infinity) return {whole_columns.first, whole_rows.last};
    return rows_at_infinity ? whole_rows : columns_at_infinity ? whole_columns : Range{0, count};
  }

  int64_t tile[kMost];
  int64_t count;
  Range whole_rows, whole_columns;
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

  // kTiles of a block, from its `first` on; behind its last all are elsewhere.
  template <int kMost, int kSize, int kTiles>
  void find(const Conv3x3Block<kOutputs, kMost>& block, int64_t first,
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
