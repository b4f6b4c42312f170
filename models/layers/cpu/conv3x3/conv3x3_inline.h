// The functions of a Conv3x3Kernels table for the capability whose source includes this header: Winograd's
// tiles (winograd.h) with channels in the lanes. In float tiles have 4 x 4 outputs: 36 multiplications for 16
// outputs instead of 144. In bfloat16 they have 2 x 2: 16 for 4 outputs instead of 36. Larger tiles would add
// up numbers that have too few digits for it.
#pragma once

#include <lockstep/models/layers/cpu/conv3x3/conv3x3_layout.h>
#include <lockstep/models/layers/cpu/conv3x3/conv3x3_tiles.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

template <class T>
struct Conv3x3 : Conv3x3Layout<T> {
  using Layout = Conv3x3Layout<T>;
  using Layout::convolution_scratch, Layout::filter_slices, Layout::kTogether, Layout::sum_slices,
      Layout::sums_scratch;
  using Layout::kOutputs, Layout::kPanel, Layout::kPoints, Layout::kSlices, Layout::kTilesAtOnce;
  using typename Layout::Element, typename Layout::Number, typename Layout::Rows, typename Layout::Sums;
  using typename Layout::Tile;
  using Tiles = Conv3x3Tiles<kOutputs>;
  using Block = Conv3x3Block<kOutputs, kTilesAtOnce>;
  template <class Value>
  using Images = Conv3x3Images<Value, kOutputs>;
  template <class Value, int kSize, int kTiles = 1>
  using Pixels = Conv3x3Pixels<Value, kOutputs, kSize, kTiles>;

  static int64_t tiles(const Conv3x3Shape& shape) { return Tiles{shape}.of_an_image(); }
  static int64_t prepared_bytes(const Conv3x3Shape& shape) {
    // For input_gradient() rows and columns are exchanged, and with them the gaps between panels.
    const int64_t forward = filter_slices(nullptr, shape.in, shape.out).bytes();
    const int64_t backward = filter_slices(nullptr, shape.out, shape.in).bytes();
    return forward > backward ? forward : backward;
  }
  static int64_t sums_bytes(const Conv3x3Shape& shape) { return sum_slices(nullptr, shape).bytes(); }
  static int64_t scratch_bytes(const Conv3x3Shape& shape) {
    const auto most = [](int64_t a, int64_t b) { return a > b ? a : b; };
    const Conv3x3Shape exchanged{shape.height, shape.width, shape.out, shape.in};
    return most(sums_scratch(nullptr, shape).bytes(shape),
                most(convolution_scratch(nullptr, shape).bytes(shape),
                     convolution_scratch(nullptr, exchanged).bytes(exchanged)));
  }

  static void prepare(const Number* filters, const Conv3x3Shape& shape, bool for_input_gradient,
                      Range outputs, void* prepared) {
    const int64_t in = shape.in;
    const auto slices =
        for_input_gradient ? filter_slices(prepared, shape.out, in) : filter_slices(prepared, in, shape.out);
    for (int64_t o = outputs.first; o < outputs.last; o += kLanes) {
      for (int64_t c = 0; c < in; c += kLanes) {
        FilterTaps taps;
        load_taps(filters + o * 9 * in + c, in, for_input_gradient, taps);
        const int64_t row = for_input_gradient ? o : c, column = for_input_gradient ? c : o;
        for (int i = 0; i < kLanes; i += kTogether) {
          Lanes<Number> points[kSlices][kTogether];
          for (int k = 0; k < kTogether; ++k) filter_points(&taps[0][i + k], &points[0][k]);
          for (int slice = 0; slice < kSlices; ++slice) {
            stream_together(points[slice], slices.place((row + i) / kTogether, column, slice));
          }
        }
      }
    }
    streams_done();
  }

  // The same convolution of dy with the same filters, rotated by 180 degrees, from out to in channels.
  static void input_gradient(const Number* dy, const void* prepared, Range tiles, const Conv3x3Shape& shape,
                             void* scratch, T* dx) {
    convolve(dy, prepared, nullptr, tiles, {shape.height, shape.width, shape.out, shape.in}, scratch, dx);
  }

  template <class From, class To>
  static void convolve(const From* x, const void* prepared, const Number* bias, Range range,
                       const Conv3x3Shape& shape, void* memory, To* y) {
    const Tiles tiles{shape};
    const auto scratch = convolution_scratch(memory, shape);
    const auto& inputs = scratch.first;
    const auto& outputs = scratch.second;
    const auto filters = filter_slices(prepared, shape.in, shape.out);
    over_blocks(tiles, range, [&](const Block& block) {
      const auto* zeros = cleared<From>(scratch.pixel, shape.in);
      gather<kPoints, Tile::kBT, From>({x, tiles, shape.in, /*border=*/1, zeros}, block, inputs);
      for (int slice = 0; slice < kSlices; ++slice) {
        const Range rows = with_product(block, slice);
        for (int64_t to = 0; to < shape.out; to += kPanel) {
          multiply_panels(inputs.place(rows.first, 0, slice), inputs.panel_stride(), shape.in / kPanel,
                          static_cast<int>(rows.last - rows.first), filters.place(0, to, slice),
                          outputs.place(rows.first, to, slice));
        }
      }
      auto* elsewhere = reinterpret_cast<To*>(scratch.pixel);
      scatter<To>(outputs, bias, block, {y, tiles, shape.out, /*border=*/0, elsewhere});
    });
  }

  static void filter_sums(const T* x, const Number* dy, Range range, Range outputs, const Conv3x3Shape& shape,
                          void* memory, void* sums) {
    const Tiles tiles{shape};
    const auto scratch = sums_scratch(memory, shape);
    const auto &inputs = scratch.first, &doutputs = scratch.second;
    const auto total = sum_slices(sums, shape);
    const auto* zeros = cleared<Number>(scratch.pixel, shape.in > shape.out ? shape.in : shape.out);
    const auto* zeros_of_x = reinterpret_cast<const T*>(zeros);
    bool add = false;
    over_blocks(tiles, range, [&](const Block& block) {
      gather_together<kPoints, Tile::kBT, T>({x, tiles, shape.in, /*border=*/1, zeros_of_x}, block,
                                             {0, shape.in}, inputs);
      gather_together<kOutputs, Tile::kA, Number>({dy, tiles, shape.out, /*border=*/0, zeros}, block, outputs,
                                                  doutputs);
      for (int slice = 0; slice < kSlices; ++slice) {
        // Whole elements: beside the tiles that have a product here, dy is 0.
        const Range tiles_here = with_product(block, slice);
        const int64_t first = tiles_here.first / kTogether;
        const auto depth = static_cast<int>((tiles_here.last + kTogether - 1) / kTogether - first);
        for (int64_t from = 0; from < shape.in; from += kPanel) {
          for (int64_t to = outputs.first; to < outputs.last; to += kPanel) {
            multiply_panel({doutputs.place(first, to, slice), 1, kPanel}, inputs.place(first, from, slice),
                           kPanel, depth, add, total.place(to, from, slice));
          }
        }
      }
      add = true;
    });
  }

  static void filter_gradient(const void* sums, int64_t parts, Range outputs, const Conv3x3Shape& shape,
                              Number* dfilters) {
    const int64_t apart = sums_bytes(shape) / int64_t(sizeof(Number));
    const auto total = sum_slices(sums, shape);
    for (int64_t panel = 0; panel < shape.in; panel += kPanel) {
      for (int64_t o = outputs.first; o < outputs.last; ++o) {
        for (int64_t c = panel; c < panel + kPanel; c += kLanes) {
          Lanes<Number> points[kSlices], half[3][kPoints], taps[9];
          for (int slice = 0; slice < kSlices; ++slice) {
            points[slice] = sum_of_parts(total.place(o, c, slice), parts, apart);
          }
          for (int i = 0; i < kPoints; ++i)
            from_points<Number, Tile::kGT>(points + i, kPoints, &half[0][i], kPoints);
          for (int i = 0; i < 3; ++i) from_points<Number, Tile::kGT>(half[i], 1, taps + 3 * i, 1);
          for (int tap = 0; tap < 9; ++tap) store(taps[tap], dfilters + (o * 9 + tap) * shape.in + c);
        }
      }
    }
  }

 private:
  static Range with_product(const Block& block, int slice) {
    constexpr int kInfinity = kPoints - 1;
    return block.with(slice / kPoints == kInfinity, slice % kPoints == kInfinity);
  }

  static Lanes<Number> sum_of_parts(const Number* sums, int64_t parts, int64_t apart) {
    prefetch_ahead(sums);
    Lanes<Number> sum = load(sums);
    for (int64_t part = 1; part < parts; ++part) sum += load(sums + part * apart);
    return sum;
  }

  template <class Use>
  static void over_blocks(const Tiles& tiles, Range range, const Use& use) {
    for (int64_t first = range.first; first < range.last; first += kTilesAtOnce) {
      const int64_t end = first + kTilesAtOnce;
      use(Block(tiles, {first, end < range.last ? end : range.last}));
    }
  }

  template <class Value>
  static const Value* cleared(Number* numbers, int64_t count) {
    for (int64_t i = 0; i < count; ++i) numbers[i] = 0;
    return reinterpret_cast<const Value*>(numbers);
  }

  // The nine taps of kLanes filters and kLanes inputs: kLanes rows, with columns in the lanes.
  using FilterTaps = Lanes<Number>[9][kLanes];

  // Loads the taps of kLanes filters and kLanes inputs. Inputs are the columns for an input gradient.
  static void load_taps(const Number* filters, int64_t in, bool for_input_gradient, FilterTaps& taps) {
    for (int tap = 0; tap < 9; ++tap) {
      for (int i = 0; i < kLanes; ++i) {
        const Number* from = filters + (i * 9 + (for_input_gradient ? 8 - tap : tap)) * in;
        prefetch_ahead(from);
        taps[tap][i] = load(from);
      }
      if (!for_input_gradient) transpose<Number>(taps[tap]);
    }
  }

  // Transforms one row of taps to points. Taps are kLanes apart, points kTogether.
  static void filter_points(const Lanes<Number>* taps, Lanes<Number>* points) {
    Lanes<Number> half[kPoints][3];
    for (int i = 0; i < 3; ++i) to_points<Number, Tile::kG>(taps + i * kLanes, 3 * kLanes, &half[0][i], 3);
    for (int i = 0; i < kPoints; ++i)
      to_points<Number, Tile::kG>(half[i], 1, points + i * kPoints * kTogether, kTogether);
  }

  // Calls use(slice, points) for kLanes channels of a tile, where points = matrix times (kSize x kSize
  // pixels) times the transposed matrix.
  template <int kSize, const auto& matrix, class Value, class Use>
  static void tile_points(const Value* const* pixel, int64_t c, const Use& use) {
    Lanes<Number> pixels[kSize][kSize], half[kPoints][kSize], points[kPoints];
#pragma GCC unroll 36
    for (int i = 0; i < kSize * kSize; ++i) pixels[i / kSize][i % kSize] = load(pixel[i] + c);
#pragma GCC unroll 6
    for (int i = 0; i < kSize; ++i) to_points<Number, matrix>(&pixels[0][i], kSize, &half[0][i], kSize);
#pragma GCC unroll 6
    for (int i = 0; i < kPoints; ++i) {
      to_points<Number, matrix>(half[i], 1, points, 1);
#pragma GCC unroll 6
      for (int k = 0; k < kPoints; ++k) use(i * kPoints + k, points[k]);
    }
  }

  // Transforms the tiles of a block to points, one tile after another.
  template <int kSize, const auto& matrix, class Value>
  static void gather(const Images<const Value>& images, const Block& block, const Rows& slices) {
    const int64_t channels = images.channels, stride = slices.slice_stride();
    Pixels<const Value, kSize> now, next;
    images.find(block, 0, &next);
    for (int64_t tile = 0; tile < block.count; ++tile) {
      now = next;
      images.find(block, tile + 1, &next);
      for (int64_t c = 0; c < channels; c += kLanes) {
        next.prefetch(c);
        Element* to = slices.place(tile, c / kTogether);
        tile_points<kSize, matrix>(now.at[0], c, [&](int slice, const Lanes<Number>& points) {
          store(points, reinterpret_cast<T*>(to + slice * stride));
        });
      }
    }
  }

  // Transforms the tiles of a block to points, kTogether tiles in one element.
  template <int kSize, const auto& matrix, class Value>
  static void gather_together(const Images<const Value>& images, const Block& block, Range channels,
                              const Rows& slices) {
    const int64_t stride = slices.slice_stride();
    Pixels<const Value, kSize, kTogether> now, next;
    images.find(block, 0, &next);
    for (int64_t tile = 0; tile < block.count; tile += kTogether) {
      now = next;
      images.find(block, tile + kTogether, &next);
      for (int64_t c = channels.first; c < channels.last; c += kLanes) {
        next.prefetch(c);
        Lanes<Number> together[kSlices][kTogether];
        for (int i = 0; i < kTogether; ++i) {
          tile_points<kSize, matrix>(
              now.at[i], c, [&](int slice, const Lanes<Number>& points) { together[slice][i] = points; });
        }
        Element* to = slices.place(tile / kTogether, c);
        for (int slice = 0; slice < kSlices; ++slice) store_together(together[slice], to + slice * stride);
      }
    }
  }

  // Transforms the points of the tiles of a block to outputs.
  template <class Value>
  static void scatter(const Sums& slices, const Number* bias, const Block& block,
                      const Images<Value>& images) {
    const int64_t channels = images.channels, stride = slices.slice_stride();
    Pixels<Value, kOutputs> now, next;
    images.find(block, 0, &next);
    for (int64_t tile = 0; tile < block.count; ++tile) {
      now = next;
      images.find(block, tile + 1, &next);
      for (int64_t c = 0; c < channels; c += kLanes) {
        next.prefetch(c);
        Lanes<Number> half[kOutputs][kPoints], points[kPoints], outputs[kOutputs];
        const Number* from = slices.place(tile, c);
        const Lanes<Number> added = bias ? load(bias + c) : Lanes<Number>{};
#pragma GCC unroll 6
        for (int k = 0; k < kPoints; ++k) {
#pragma GCC unroll 6
          for (int i = 0; i < kPoints; ++i) points[i] = load(from + (i * kPoints + k) * stride);
          from_points<Number, Tile::kAT>(points, 1, &half[0][k], kPoints);
        }
#pragma GCC unroll 4
        for (int i = 0; i < kOutputs; ++i) {
          from_points<Number, Tile::kAT>(half[i], 1, outputs, 1);
#pragma GCC unroll 4
          for (int k = 0; k < kOutputs; ++k) store(outputs[k] + added, now.at[0][i * kOutputs + k] + c);
        }
      }
    }
  }

  // c (rows, 64) = a b, or += a b, where b is (depth, 64).
  static void multiply_panel(const Strided<Element>& a, const Element* b, int rows, int depth, bool add,
                             Number* c) {
    for (int column = 0; column < kPanel; column += kRegistersAtOnce * kLanes) {
      multiply_columns<Element, kRegistersAtOnce>(a, b + column, kPanel, rows, depth, add, c + column,
                                                  kPanel);
    }
  }

  // The same where a is (rows, 64 x panels).
  static void multiply_panels(const Element* a, int64_t panel_stride, int64_t panels, int rows,
                              const Element* b, Number* c) {
    constexpr int kDepth = kPanel / kTogether;
    for (int64_t panel = 0; panel < panels; ++panel) {
      multiply_panel({a + panel * panel_stride, kDepth, 1}, b + panel * kDepth * kPanel, rows, kDepth,
                     panel > 0, c);
    }
  }
};

template <class T>
inline constexpr Conv3x3Kernels<T> kConv3x3Kernels = {
    .tiles = Conv3x3<T>::tiles,
    .prepared_bytes = Conv3x3<T>::prepared_bytes,
    .scratch_bytes = Conv3x3<T>::scratch_bytes,
    .sums_bytes = Conv3x3<T>::sums_bytes,
    .prepare = Conv3x3<T>::prepare,
    .convolve = Conv3x3<T>::template convolve<T, Computed<T>>,
    .input_gradient = Conv3x3<T>::input_gradient,
    .filter_sums = Conv3x3<T>::filter_sums,
    .filter_gradient = Conv3x3<T>::filter_gradient};

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
