// A convolution with stride 1, its bias, ReLU and average pooling of 2 x 2 as one operation, for the images
// of one group: x (in, side, side), filters (out, in, window, window), bias (out), pooled (out, pooled,
// pooled). Each element of x and pooled has all its lanes. Only the outputs of the convolution that pooling
// uses are computed.
//
// Direct sums in registers: a block of output channels times the four outputs of a pooled cell, or of
// weights, or of inputs, stays there while all its terms are read once. (Blocking as in M. Dukhan, "The
// indirect convolution algorithm", 2019, and oneDNN's direct kernels, with images instead of channels in the
// lanes.)
#pragma once

#include <lockstep/models/layers/cpu/lanes.h>
#include <lockstep/models/layers/cpu/lenet/layers.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

template <int kIn_, int kOut_, int kSide_, int kWindow_, int kPooled_>
struct ConvPool {
  static constexpr int kIn = kIn_;          // channels
  static constexpr int kOut = kOut_;        // channels
  static constexpr int kSide = kSide_;      // of x
  static constexpr int kWindow = kWindow_;  // of a filter
  static constexpr int kPooled = kPooled_;  // of pooled
  static constexpr int kRow = 2 * kPooled;  // side of the outputs that are pooled
  static constexpr int kTaps = kWindow * kWindow;
  static constexpr int kFilter = kIn * kTaps;
  static_assert(kRow + kWindow - 1 <= kSide);
};

// Output channels at a time: as many as 32 wide or 16 narrower registers hold, with four sums or kWindow sums
// each.
inline constexpr int kBlock = LOCKSTEP_LANES == 16 ? 5 : 2;
// How many groups are summed lane by lane before their lanes are added up, for filter gradients: 64 images.
inline constexpr int kGroups = 64 / kLanes;
// Input channels at a time in gather_input_gradient(), with a row of sums each.
inline constexpr int kInputBlock = LOCKSTEP_LANES == 16 ? 2 : 1;

// The four sums of a pooled cell for kBlock channels, with bias. corner: x at the cell's first output.
template <class T, class Shape>
inline void cell_sums(const Lanes<T>* corner, const T* filters, const T* bias, Lanes<T> (&sum)[kBlock][4]) {
  constexpr int kSide = Shape::kSide;
#pragma GCC unroll 8
  for (int j = 0; j < kBlock; ++j) sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = Lanes<T>{} + bias[j];
  for (int c = 0; c < Shape::kIn; ++c) {
#pragma GCC unroll 1
    for (int ky = 0; ky < Shape::kWindow; ++ky) {
#pragma GCC unroll 8
      for (int kx = 0; kx < Shape::kWindow; ++kx) {
        const Lanes<T>* x = corner + (c * kSide + ky) * kSide + kx;
        const Lanes<T> x0 = x[0], x1 = x[1], x2 = x[kSide], x3 = x[kSide + 1];
#pragma GCC unroll 8
        for (int j = 0; j < kBlock; ++j) {
          const T weight = filters[j * Shape::kFilter + c * Shape::kTaps + ky * Shape::kWindow + kx];
          sum[j][0] += x0 * weight;
          sum[j][1] += x1 * weight;
          sum[j][2] += x2 * weight;
          sum[j][3] += x3 * weight;
        }
      }
    }
  }
}

// ReLU and pooling of a cell's four outputs. Bit i of `signs` is set if ReLU passes the i-th. (NaN passes, as
// in torch.)
template <class T>
inline void pool_cell(const Lanes<T> (&outputs)[4], Lanes<T>* pooled, Bytes* signs) {
  const Lanes<T> zero = {};
  Lanes<T> total = zero;
  Integers<T> bits = {};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Integers<T> stopped = outputs[i] <= zero;
    total += stopped ? zero : outputs[i];
    bits |= ~stopped & (1 << i);
  }
  *pooled = total * T(.25);
  *signs = __builtin_convertvector(bits, Bytes);
}

template <class T, class Shape>
inline void conv_pool(const Lanes<T>* x, const T* filters, const T* bias, Lanes<T>* pooled, Bytes* signs) {
  constexpr int kPooled = Shape::kPooled;
  static_assert(Shape::kOut % kBlock == 0);
  for (int o = 0; o < Shape::kOut; o += kBlock) {
    for (int cell = 0; cell < kPooled * kPooled; ++cell) {
      const int corner = 2 * (cell / kPooled) * Shape::kSide + 2 * (cell % kPooled);
      Lanes<T> sum[kBlock][4];
      cell_sums<T, Shape>(x + corner, filters + o * Shape::kFilter, bias + o, sum);
#pragma GCC unroll 8
      for (int j = 0; j < kBlock; ++j) {
        const int at = (o + j) * kPooled * kPooled + cell;
        pool_cell<T>(sum[j], pooled + at, signs + at);
      }
    }
  }
}

// Computes the gradient of the convolution's outputs, (out, 2 pooled, 2 pooled), from that of `pooled`, and
// adds its sums to dbias.
template <class T, class Shape>
inline void unpool(const Lanes<T>* dpooled, const Bytes* signs, Lanes<T>* dconv, T* dbias) {
  constexpr int kPooled = Shape::kPooled, kRow = Shape::kRow;
  for (int o = 0; o < Shape::kOut; ++o) {
    Lanes<T> sum = {};
    for (int cell = 0; cell < kPooled * kPooled; ++cell) {
      const Lanes<T> quarter = dpooled[o * kPooled * kPooled + cell] * T(.25);
      const auto bits = __builtin_convertvector(signs[o * kPooled * kPooled + cell], Integers<T>);
      Lanes<T>* corner = dconv + (o * kRow + 2 * (cell / kPooled)) * kRow + 2 * (cell % kPooled);
      Lanes<T> values[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        values[i] = (bits & (1 << i)) != 0 ? quarter : Lanes<T>{};
        corner[i / 2 * kRow + i % 2] = values[i];
      }
      sum += (values[0] + values[1]) + (values[2] + values[3]);
    }
    dbias[o] += sum_of<T>(sum);
  }
}

// Adds the gradient of the filters over `groups` groups, whose x and dconv lie one after another.
template <class T, class Shape>
inline void add_filter_gradient(const Lanes<T>* x, const Lanes<T>* dconv, int groups, T* dfilters) {
  constexpr int kSide = Shape::kSide, kWindow = Shape::kWindow, kRow = Shape::kRow;
  for (int o = 0; o < Shape::kOut; o += kBlock) {
    for (int c = 0; c < Shape::kIn; ++c) {
      for (int ky = 0; ky < kWindow; ++ky) {
        Lanes<T> sum[kBlock][kWindow] = {};
        for (int line = 0; line < groups * kRow; ++line) {
          const int group = line / kRow, y = line % kRow;
          const Lanes<T>* values = x + ((group * Shape::kIn + c) * kSide + y + ky) * kSide;
          const Lanes<T>* gradients = dconv + ((group * Shape::kOut + o) * kRow + y) * kRow;
#pragma GCC unroll 2
          for (int at = 0; at < kRow; ++at) {
#pragma GCC unroll 8
            for (int j = 0; j < kBlock; ++j) {
              const Lanes<T> gradient = gradients[j * kRow * kRow + at];
#pragma GCC unroll 8
              for (int kx = 0; kx < kWindow; ++kx) sum[j][kx] += gradient * values[at + kx];
            }
          }
        }
        T* row = dfilters + o * Shape::kFilter + c * Shape::kTaps + ky * kWindow;
        for (int j = 0; j < kBlock; ++j) {
          for (int kx = 0; kx < kWindow; ++kx) row[j * Shape::kFilter + kx] += sum_of<T>(sum[j][kx]);
        }
      }
    }
  }
}

// Computes the whole gradient of x. A row at a time gathers from the gradients of the outputs that use it.
template <class T, class Shape>
inline void gather_input_gradient(const Lanes<T>* dconv, const T* filters, Lanes<T>* dx) {
  constexpr int kSide = Shape::kSide, kWindow = Shape::kWindow, kRow = Shape::kRow;
  static_assert(Shape::kIn % kInputBlock == 0);
  for (int c = 0; c < Shape::kIn; c += kInputBlock) {
    for (int y = 0; y < kSide; ++y) {
      Lanes<T> sum[kInputBlock][kSide] = {};
      const int first = y < kRow ? 0 : y - kRow + 1;
      const int last = y < kWindow ? y : kWindow - 1;
      for (int o = 0; o < Shape::kOut; ++o) {
        for (int ky = first; ky <= last; ++ky) {
          const Lanes<T>* gradients = dconv + (o * kRow + y - ky) * kRow;
          const T* taps = filters + o * Shape::kFilter + c * Shape::kTaps + ky * kWindow;
#pragma GCC unroll 16
          for (int at = 0; at < kRow; ++at) {
#pragma GCC unroll 2
            for (int i = 0; i < kInputBlock; ++i) {
#pragma GCC unroll 8
              for (int kx = 0; kx < kWindow; ++kx)
                sum[i][at + kx] += gradients[at] * taps[i * Shape::kTaps + kx];
            }
          }
        }
      }
      for (int i = 0; i < kInputBlock; ++i) {
        for (int at = 0; at < kSide; ++at) dx[((c + i) * kSide + y) * kSide + at] = sum[i][at];
      }
    }
  }
}

// These functions as one way to compute a layer; WinogradConvPool is the other.
template <class T, class Shape>
struct DirectConvPool {
  static constexpr int kTransformed = 0, kSums = Shape::kOut * Shape::kFilter;
  static constexpr int kForwardScratch = 0, kBackwardScratch = 0;

  static void transform(const T*, T*) {}
  static void forward(const Lanes<T>* x, const T* filters, const T*, const T* bias, Lanes<T>* pooled,
                      Bytes* signs, Lanes<T>*) {
    conv_pool<T, Shape>(x, filters, bias, pooled, signs);
  }
  static void backward(const Lanes<T>* x, const Lanes<T>* dconv, int groups, const T*, LeNetWanted wanted,
                       T* sums, Lanes<T>*) {
    if (wanted.layer2) add_filter_gradient<T, Shape>(x, dconv, groups, sums);
  }
  static void input_gradient(int group, const Lanes<T>* dconv, const T* filters, const Lanes<T>*,
                             Lanes<T>* dx) {
    const auto* of_group = dconv + group * Shape::kOut * Shape::kRow * Shape::kRow;
    gather_input_gradient<T, Shape>(of_group, filters, dx);
  }
  static void filter_gradient(const T* sums, T* dfilters) {
    for (int i = 0; i < kSums; ++i) dfilters[i] = sums[i];
  }
};

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
