// Memory layout of the transformed numbers of conv3x3_inline.h.
//
// There is one slice for each of a tile's points. A slice of some tiles is a matrix (tiles, channels), and
// the convolution becomes its matrix product with the filters' slice (in, out). A matrix lies in panels of 64
// columns, one after another, so that a matrix product reads memory from front to back. Panels and slices
// have gaps of 16 numbers between them, because addresses with the same last 12 bits share few lines of the
// cache. An element of a factor is a number, or in bfloat16 a pair of neighbours of a sum (multiply.h).
#pragma once

#include <lockstep/models/layers/cpu/conv3x3/conv3x3_kernels.h>
#include <lockstep/models/layers/cpu/conv3x3/winograd.h>
#include <lockstep/models/layers/cpu/multiply.h>
#include <lockstep/models/layers/cpu/streams.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

template <class T>
struct Conv3x3Element {
  using Type = T;
  static constexpr int kOutputs = 4;
};
template <>
struct Conv3x3Element<Bf16> {
  using Type = Bf16Pair;
  static constexpr int kOutputs = 2;
};

// Packs kTogether numbers into one element at `to`, for kLanes columns: in bfloat16 two rows into pairs.
template <class T>
inline Lanes<T> together(const Lanes<T>* values, const T*) {
  return *values;
}
inline UpperHalves together(const Lanes<float>* values, const Bf16Pair*) {
  return (rounded_to_bf16(values[1]) & 0xffff0000) | (rounded_to_bf16(values[0]) >> 16);
}
template <class Number, class Element>
inline void store_together(const Number* values, Element* to) {
  const auto elements = together(values, to);
  __builtin_memcpy(to, &elements, sizeof(elements));
}
template <class Number, class Element>
inline void stream_together(const Number* values, Element* to) {
  stream(together(values, to), to);
}

template <class T>
struct Conv3x3Layout {
  using Number = Computed<T>;
  using Element = typename Conv3x3Element<T>::Type;
  static constexpr int kTogether = sizeof(Element) / sizeof(T);  // numbers in an element
  using Tile = WinogradTile<Conv3x3Element<T>::kOutputs, /*window=*/3>;
  static constexpr int kOutputs = Tile::kOutputs, kPoints = Tile::kPoints, kSlices = kPoints * kPoints;
  static constexpr int kPanel = Conv3x3Shape::kChannels;
  static constexpr int kApart = 16;
  // All transformed filters are read once for this many tiles; with 512 channels they come from memory.
  static constexpr int kTilesAtOnce = 132 * kTogether;

  // One matrix per slice, in panels of `width` columns.
  template <class E>
  struct Slices {
    E* at;
    int64_t rows, columns, width = kPanel;

    int64_t panel_stride() const { return rows * width + kApart; }
    int64_t slice_stride() const { return columns / width * panel_stride() + kApart; }
    int64_t bytes() const { return kSlices * slice_stride() * int64_t(sizeof(E)); }
    // Address of an element in slice 0.
    E* place(int64_t row, int64_t column) const {
      return at + column / width * panel_stride() + row * width + column % width;
    }
    E* place(int64_t row, int64_t column, int slice) const {
      return place(row, column) + slice * slice_stride();
    }
  };

  // Filters as the right factor of a matrix product, from `from` to `to` channels.
  static Slices<Element> filter_slices(const void* at, int64_t from, int64_t to) {
    return {static_cast<Element*>(const_cast<void*>(at)), from / kTogether, to};
  }
  static Slices<Number> sum_slices(const void* at, const Conv3x3Shape& shape) {
    return {static_cast<Number*>(const_cast<void*>(at)), shape.out, shape.in};
  }

  // Division of the caller's scratch memory, for some tiles: two sets of slices, and one pixel of the larger
  // number of channels.
  template <class First, class Second>
  struct Scratch {
    First first;
    Second second;
    Number* pixel;

    Scratch(void* memory, First first_slices, Second second_slices)
        : first(first_slices), second(second_slices) {
      auto* bytes = static_cast<unsigned char*>(memory);
      first.at = reinterpret_cast<decltype(first.at)>(bytes);
      second.at = reinterpret_cast<decltype(second.at)>(bytes + first.bytes());
      pixel = reinterpret_cast<Number*>(bytes + first.bytes() + second.bytes());
    }
    int64_t bytes(const Conv3x3Shape& shape) const {
      const int64_t widest = shape.in > shape.out ? shape.in : shape.out;
      return first.bytes() + second.bytes() + widest * int64_t(sizeof(Number));
    }
  };
  using Rows = Slices<Element>;
  using Sums = Slices<Number>;
  // For a convolution: (tiles, in), whose elements hold neighbouring channels, and (tiles, out).
  static Scratch<Rows, Sums> convolution_scratch(void* memory, const Conv3x3Shape& shape) {
    return {memory,
            {nullptr, kTilesAtOnce, shape.in / kTogether, kPanel / kTogether},
            {nullptr, kTilesAtOnce, shape.out}};
  }
  // For sums over tiles: (tiles, in) and (tiles, out), whose elements hold neighbouring tiles.
  static Scratch<Rows, Rows> sums_scratch(void* memory, const Conv3x3Shape& shape) {
    return {memory,
            {nullptr, kTilesAtOnce / kTogether, shape.in},
            {nullptr, kTilesAtOnce / kTogether, shape.out}};
  }
};

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
