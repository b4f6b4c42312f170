// The operation of conv_pool.h with Winograd's tiles of 4 x 4 outputs (winograd.h): for windows of 5 x 5, 64
// multiplications for 16 outputs instead of 400.
//
// Transformed numbers lie slice by slice. A slice has one of a tile's 8 x 8 points, of all channels and
// tiles. Within it the convolution is a matrix product of two small matrices.
#pragma once

#include <lockstep/models/layers/cpu/conv3x3/winograd.h>
#include <lockstep/models/layers/cpu/lenet/conv_pool.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

// Output channels whose products are transformed back while they are in the second-level cache.
inline constexpr int kOutBlock = 10;
// Input channels at a time, with kBlock output channels, whose filter gradients are summed in registers.
inline constexpr int kFilterBlock = 4;

template <class T, class Shape>
struct WinogradConvPool {
  using Tile = WinogradTile</*outputs=*/4, Shape::kWindow>;
  static constexpr int kIn = Shape::kIn, kOut = Shape::kOut, kSide = Shape::kSide, kRow = Shape::kRow;
  static constexpr int kPoints = Tile::kPoints, kSlices = kPoints * kPoints;
  static constexpr int kAcross = kRow / Tile::kOutputs;  // tiles next to each other
  static constexpr int kTiles = kAcross * kAcross;
  static constexpr int kPairs = kOut * kIn;  // of channels, with one filter each
  static_assert(kTiles == 4 && kRow % Tile::kOutputs == 0 && kOut % kOutBlock == 0 &&
                kOutBlock % kBlock == 0);
  static_assert(kIn % kBlock == 0 && kIn % kFilterBlock == 0);

  static constexpr int kTransformed = kSlices * kPairs;                         // in elements
  static constexpr int kSums = kSlices * kPairs;                                // in elements
  static constexpr int kForwardScratch = kSlices * kTiles * (kIn + kOutBlock);  // in Lanes
  static constexpr int kBackwardScratch = kGroups * kTiles * (kPoints * (kOut + 2 * kIn) + kSlices * kIn);

  // filters (out, in, window, window) -> (slices, out, in).
  static void transform(const T* filters, T* transformed) {
    constexpr int kWindow = Shape::kWindow;
    for (int first = 0; first < kPairs; first += kLanes) {
      const int count = kPairs - first < kLanes ? kPairs - first : kLanes;
      Lanes<T> taps[kWindow][kWindow], half[kPoints][kWindow], points[kPoints][kPoints];
      into_lanes<T>(filters + first * Shape::kTaps, count, Shape::kTaps, taps[0]);
      for (int i = 0; i < kWindow; ++i) to_points<T, Tile::kG>(&taps[0][i], kWindow, &half[0][i], kWindow);
      for (int i = 0; i < kPoints; ++i) to_points<T, Tile::kG>(half[i], 1, points[i], 1);
      for (int slice = 0; slice < kSlices; ++slice) {
        store_some<T>(points[slice / kPoints][slice % kPoints], count, transformed + slice * kPairs + first);
      }
    }
  }

  static void forward(const Lanes<T>* x, const T*, const T* transformed, const T* bias, Lanes<T>* pooled,
                      Bytes* signs, Lanes<T>* scratch) {
    Lanes<T>* inputs = scratch;                            // (slices, in, tiles)
    Lanes<T>* products = inputs + kSlices * kIn * kTiles;  // (slices, kOutBlock, tiles)
    for (int c = 0; c < kIn; ++c) {
      for (int tile = 0; tile < kTiles; ++tile) {
        Lanes<T> half[kPoints][kPoints];
        const Lanes<T>* corner = x + c * kSide * kSide + corner_of(tile, kSide);
        for (int i = 0; i < kPoints; ++i) to_points<T, Tile::kBT>(corner + i, kSide, &half[0][i], kPoints);
        for (int i = 0; i < kPoints; ++i) {
          to_points<T, Tile::kBT>(half[i], 1, inputs + (i * kPoints * kIn + c) * kTiles + tile, kIn * kTiles);
        }
      }
    }
    for (int o = 0; o < kOut; o += kOutBlock) {
      for (int slice = 0; slice < kSlices; ++slice) {
        multiply<kIn, kOutBlock, 1, kIn>(inputs + slice * kIn * kTiles,
                                         transformed + slice * kPairs + o * kIn,
                                         products + slice * kOutBlock * kTiles);
      }
      for (int at = 0; at < kOutBlock * kTiles; ++at) {
        constexpr int kCells = Shape::kPooled * Shape::kPooled;
        const int first = (o + at / kTiles) * kCells + corner_of(at % kTiles, Shape::kPooled) / 2;
        pool_tile(products + at, bias[o + at / kTiles], pooled + first, signs + first);
      }
    }
  }

  // If layer2 is wanted, adds to `sums`. If layer1 is wanted, writes what input_gradient() needs to
  // `scratch`. Takes one row of points at a time: the transformed gradients of several groups at all points
  // would not fit into the second-level cache.
  static void backward(const Lanes<T>* x, const Lanes<T>* dconv, int groups, const T* transformed,
                       LeNetWanted wanted, T* sums, Lanes<T>* scratch) {
    const auto [outputs, inputs, back, halves] = backward_parts(scratch);
    for (int row = 0; row < kPoints; ++row) {
      for (int group = 0; group < groups; ++group) {
        row_of_points<Tile::kA, kOut, kRow>(row, dconv + group * kOut * kRow * kRow,
                                            outputs + group * kOut * kTiles, NumbersTo<kPoints>());
        if (!wanted.layer2) continue;
        row_of_points<Tile::kBT, kIn, kSide>(row, x + group * kIn * kSide * kSide,
                                             inputs + group * kIn * kTiles, NumbersTo<kPoints>());
      }
      for (int i = 0; i < kPoints; ++i) {
        const int slice = row * kPoints + i;
        const Lanes<T>* doutputs = outputs + i * kGroups * kOut * kTiles;
        if (wanted.layer2) {
          add_filter_sums(doutputs, inputs + i * kGroups * kIn * kTiles, groups, sums + slice * kPairs);
        }
        for (int group = 0; group < groups && wanted.layer1; ++group) {
          multiply<kOut, kIn, kIn, 1>(doutputs + group * kOut * kTiles, transformed + slice * kPairs,
                                      back + (i * kGroups + group) * kIn * kTiles);
        }
      }
      for (int at = 0; at < groups * kIn * kTiles && wanted.layer1; ++at) {
        from_points<T, Tile::kB>(back + at, kGroups * kIn * kTiles, halves + at * kSlices + row * kPoints, 1);
      }
    }
  }

  // dx (in, side, side) of one of the groups that backward() was called for.
  static void input_gradient(int group, const Lanes<T>*, const T*, const Lanes<T>* scratch, Lanes<T>* dx) {
    const Lanes<T>* halves =
        backward_parts(const_cast<Lanes<T>*>(scratch)).halves + group * kIn * kTiles * kSlices;
    for (int at = 0; at < kIn * kSide * kSide; ++at) dx[at] = Lanes<T>{};
    for (int at = 0; at < kIn * kTiles; ++at, halves += kSlices) {
      Lanes<T>* corner = dx + at / kTiles * kSide * kSide + corner_of(at % kTiles, kSide);
      for (int column = 0; column < kPoints; ++column) {
        Lanes<T> values[kPoints];
        from_points<T, Tile::kB>(halves + column, kPoints, values, 1);
#pragma GCC unroll 8
        for (int y = 0; y < kPoints; ++y) corner[y * kSide + column] += values[y];
      }
    }
  }

  // The gradient of the filters from the sums of all groups.
  static void filter_gradient(const T* sums, T* dfilters) {
    constexpr int kWindow = Shape::kWindow;
    for (int first = 0; first < kPairs; first += kLanes) {
      const int count = kPairs - first < kLanes ? kPairs - first : kLanes;
      Lanes<T> points[kPoints][kPoints], half[kWindow][kPoints], taps[kWindow][kWindow];
      for (int slice = 0; slice < kSlices; ++slice) {
        points[slice / kPoints][slice % kPoints] = load_some<T>(sums + slice * kPairs + first, count);
      }
      for (int i = 0; i < kPoints; ++i)
        from_points<T, Tile::kGT>(&points[0][i], kPoints, &half[0][i], kPoints);
      for (int i = 0; i < kWindow; ++i) from_points<T, Tile::kGT>(half[i], 1, taps[i], 1);
      from_lanes<T>(taps[0], count, Shape::kTaps, dfilters + first * Shape::kTaps);
    }
  }

 private:
  // Each part has room for kGroups groups.
  struct BackwardParts {
    Lanes<T>* outputs;  // (points, group, out, tiles): transformed gradient of the outputs, one row of points
    Lanes<T>* inputs;   // (points, group, in, tiles): the transformed inputs
    Lanes<T>* back;     // (points, group, in, tiles): the gradient of `inputs`
    Lanes<T>* halves;   // (group, in, tiles, points, points): `back` of all rows, columns transformed back
  };
  static BackwardParts backward_parts(Lanes<T>* scratch) {
    constexpr int kRowOfPoints = kGroups * kTiles * kPoints;
    return {scratch, scratch + kRowOfPoints * kOut, scratch + kRowOfPoints * (kOut + kIn),
            scratch + kRowOfPoints * (kOut + 2 * kIn)};
  }

  static int corner_of(int tile, int side) {
    return (tile / kAcross * side + tile % kAcross) * Tile::kOutputs;
  }

  // out (kOuter, tiles) = weights in, with in (kInner, tiles) and weights (kOuter, kInner) with the given
  // strides.
  template <int kInner, int kOuter, int kInnerStride, int kOuterStride>
  static void multiply(const Lanes<T>* in, const T* weights, Lanes<T>* out) {
    for (int outer = 0; outer < kOuter; outer += kBlock) {
      Lanes<T> sum[kBlock][kTiles] = {};
#pragma GCC unroll 2
      for (int inner = 0; inner < kInner; ++inner) {
        const Lanes<T>* x = in + inner * kTiles;
        const Lanes<T> x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
#pragma GCC unroll 8
        for (int j = 0; j < kBlock; ++j) {
          const T weight = weights[inner * kInnerStride + (outer + j) * kOuterStride];
          sum[j][0] += x0 * weight;
          sum[j][1] += x1 * weight;
          sum[j][2] += x2 * weight;
          sum[j][3] += x3 * weight;
        }
      }
#pragma GCC unroll 8
      for (int j = 0; j < kBlock; ++j) {
#pragma GCC unroll 4
        for (int tile = 0; tile < kTiles; ++tile) out[(outer + j) * kTiles + tile] = sum[j][tile];
      }
    }
  }

  // Computes a tile's outputs from its points, in slices kOutBlock x tiles apart, then bias, ReLU and pooling
  // of its 2 x 2 cells.
  static void pool_tile(const Lanes<T>* points, T bias, Lanes<T>* pooled, Bytes* signs) {
    constexpr int kOutputs = Tile::kOutputs, kSlice = kOutBlock * kTiles;
    Lanes<T> half[kOutputs][kPoints], outputs[kOutputs][kOutputs];
    for (int i = 0; i < kPoints; ++i) {
      from_points<T, Tile::kAT>(points + i * kSlice, kPoints * kSlice, &half[0][i], kPoints);
    }
    for (int i = 0; i < kOutputs; ++i) from_points<T, Tile::kAT>(half[i], 1, outputs[i], 1);
    for (int y = 0; y < kOutputs; y += 2) {
      for (int x = 0; x < kOutputs; x += 2) {
        const Lanes<T> cell[4] = {outputs[y][x] + bias, outputs[y][x + 1] + bias, outputs[y + 1][x] + bias,
                                  outputs[y + 1][x + 1] + bias};
        const int at = (y * Shape::kPooled + x) / 2;
        pool_cell<T>(cell, pooled + at, signs + at);
      }
    }
  }

  // Computes row `row` of the points of all tiles of values (channels, side, side) of one group.
  template <const auto& matrix, int kChannels, int kSideOf, int row>
  static void one_row_of_points(const Lanes<T>* values, Lanes<T>* points) {
    for (int at = 0; at < kChannels * kTiles; ++at) {
      Lanes<T> half[matrix.kColumns];
      const Lanes<T>* corner = values + at / kTiles * kSideOf * kSideOf + corner_of(at % kTiles, kSideOf);
      one_point<T, matrix, row, matrix.kColumns>(corner, kSideOf, half);
      to_points<T, matrix>(half, 1, points + at, kGroups * kChannels * kTiles);
    }
  }
  // One function per row, so that the factors 0 and 1 cost nothing.
  template <const auto& matrix, int kChannels, int kSideOf, int... rows>
  static void row_of_points(int row, const Lanes<T>* values, Lanes<T>* points, NumberList<rows...>) {
    using Row = void (*)(const Lanes<T>*, Lanes<T>*);
    constexpr Row kRows[] = {one_row_of_points<matrix, kChannels, kSideOf, rows>...};
    kRows[row](values, points);
  }

  // sums (out, in) += doutputs inputs^T of one slice, over groups, tiles and lanes.
  static void add_filter_sums(const Lanes<T>* doutputs, const Lanes<T>* inputs, int groups, T* sums) {
    for (int o = 0; o < kOut; o += kBlock) {
      constexpr int kCount = kBlock * kIn;
      Lanes<T> totals[kCount + kLanes];  // kLanes more, since whole registers are read
      for (int i = kCount; i < kCount + kLanes; ++i) totals[i] = Lanes<T>{};
      for (int c = 0; c < kIn; c += kFilterBlock) {
        Lanes<T> sum[kBlock][kFilterBlock] = {};
        for (int group = 0; group < groups; ++group) {
          const Lanes<T>* gradients = doutputs + (group * kOut + o) * kTiles;
          const Lanes<T>* values = inputs + (group * kIn + c) * kTiles;
#pragma GCC unroll 4
          for (int tile = 0; tile < kTiles; ++tile) {
#pragma GCC unroll 8
            for (int j = 0; j < kBlock; ++j) {
#pragma GCC unroll 4
              for (int i = 0; i < kFilterBlock; ++i) {
                sum[j][i] += gradients[j * kTiles + tile] * values[i * kTiles + tile];
              }
            }
          }
        }
#pragma GCC unroll 8
        for (int j = 0; j < kBlock; ++j) {
#pragma GCC unroll 4
          for (int i = 0; i < kFilterBlock; ++i) totals[j * kIn + c + i] = sum[j][i];
        }
      }
      for (int first = 0; first < kCount; first += kLanes) {
        const int count = kCount - first < kLanes ? kCount - first : kLanes;
        T* to = sums + o * kIn + first;
        store_some<T>(load_some<T>(to, count) + sums_of<T>(totals + first), count, to);
      }
    }
  }
};

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
