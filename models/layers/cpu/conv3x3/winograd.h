// Winograd's convolution of small tiles: kOutputs outputs of a filter with kWindow taps from kOutputs +
// kWindow - 1 multiplications. In one dimension
//
//     outputs = A^T ((G filter) * (B^T inputs)),   * element by element,
//
// and in two dimensions each matrix is applied to rows and to columns. (S. Winograd, "Arithmetic Complexity
// of Computations", 1980; A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2016.)
//
// Derivation of the matrices: two polynomials are multiplied by evaluating both at n - 1 points, multiplying
// the values, and interpolating; the n-th product, "at infinity", is that of the leading coefficients (Toom
// and Cook). A convolution is the transpose of that. So A has the powers of the points, G has them divided by
// the divisors of the interpolation, and row i of B^T has the coefficients of the polynomial that is 0 at all
// points but the i-th.
//
// All points but 0 and infinity come in pairs p, -p. Their rows are equal in the even columns and opposite in
// the odd ones, which halves the work: see to_points() and from_points().
#pragma once

#include <lockstep/models/layers/cpu/lanes.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

template <int kRows_, int kColumns_>
struct Matrix {
  static constexpr int kRows = kRows_, kColumns = kColumns_;
  double at[kRows][kColumns] = {};

  constexpr Matrix<kColumns, kRows> transposed() const {
    Matrix<kColumns, kRows> result;
    for (int i = 0; i < kRows; ++i) {
      for (int k = 0; k < kColumns; ++k) result.at[k][i] = at[i][k];
    }
    return result;
  }
};

template <int kOutputs_, int kWindow_>
struct WinogradTile {
  static constexpr int kOutputs = kOutputs_, kWindow = kWindow_, kPoints = kOutputs + kWindow - 1;
  static_assert(kPoints == 4 || kPoints == 6 || kPoints == 8);

  // The points without infinity, which is the last. Numbers near 1 and their inverses lose the fewest digits:
  // with six points the square roots of 2 and of 1/2 lose half as many as 1 and 2.
  static constexpr double kRoot = 1.41421356237309504880;
  static constexpr double kEight[] = {0, 1, -1, 2, -2, .5, -.5},
                          kSix[] = {0, kRoot, -kRoot, kRoot / 2, -kRoot / 2};
  static constexpr double kFour[] = {0, 1, -1};
  static constexpr const double* kPoint = kPoints == 8 ? kEight : kPoints == 6 ? kSix : kFour;

  // kPoints x size: each point's powers.
  template <int size>
  static constexpr Matrix<kPoints, size> powers() {
    Matrix<kPoints, size> result;
    for (int i = 0; i < kPoints - 1; ++i) {
      double power = 1;
      for (int k = 0; k < size; ++k, power *= kPoint[i]) result.at[i][k] = power;
    }
    result.at[kPoints - 1][size - 1] = 1;
    return result;
  }

  static constexpr Matrix<kPoints, kWindow> filter_matrix() {
    auto result = powers<kWindow>();
    for (int i = 0; i < kPoints - 1; ++i) {
      double divisor = 1;
      for (int other = 0; other < kPoints - 1; ++other) {
        if (other != i) divisor *= kPoint[i] - kPoint[other];
      }
      for (int k = 0; k < kWindow; ++k) result.at[i][k] /= divisor;
    }
    return result;
  }

  static constexpr Matrix<kPoints, kPoints> input_matrix() {
    Matrix<kPoints, kPoints> result;
    for (int i = 0; i < kPoints; ++i) {
      auto& row = result.at[i];
      row[0] = 1;
      for (int other = 0, degree = 0; other < kPoints - 1; ++other) {
        if (other == i) continue;
        ++degree;  // row times (x - point)
        for (int k = degree; k > 0; --k) row[k] = row[k - 1] - kPoint[other] * row[k];
        row[0] *= -kPoint[other];
      }
    }
    return result;
  }

  static constexpr auto kA = powers<kOutputs>();  // kPoints x kOutputs
  static constexpr auto kAT = kA.transposed();
  static constexpr auto kG = filter_matrix();  // kPoints x kWindow
  static constexpr auto kGT = kG.transposed();
  static constexpr auto kBT = input_matrix();  // kPoints x kPoints
  static constexpr auto kB = kBT.transposed();
};

// Row i of the matrix times the values, in the columns first, first + step, ...
template <class T, const auto& matrix>
inline Lanes<T> row_times(int i, int first, int step, const Lanes<T>* values) {
  Lanes<T> sum = {};
  bool begun = false;
#pragma GCC unroll 8
  for (int k = first; k < matrix.kColumns; k += step) {
    if (matrix.at[i][k] == 0) continue;
    const Lanes<T> term = values[k] * T(matrix.at[i][k]);
    sum = begun ? sum + term : term;
    begun = true;
  }
  return sum;
}

// out = matrix times in, where the matrix has a row for each point: A, G or B^T. Strides are in elements.
template <class T, const auto& matrix>
inline void to_points(const Lanes<T>* in, int in_stride, Lanes<T>* out, int out_stride) {
  constexpr int kLast = matrix.kRows - 1;
  Lanes<T> values[matrix.kColumns];
#pragma GCC unroll 8
  for (int k = 0; k < matrix.kColumns; ++k) values[k] = in[k * in_stride];
  out[0] = row_times<T, matrix>(0, 0, 1, values);
#pragma GCC unroll 4
  for (int i = 1; i < kLast; i += 2) {
    const Lanes<T> even = row_times<T, matrix>(i, 0, 2, values), odd = row_times<T, matrix>(i, 1, 2, values);
    out[i * out_stride] = even + odd;
    out[(i + 1) * out_stride] = even - odd;
  }
  out[kLast * out_stride] = row_times<T, matrix>(kLast, 0, 1, values);
}

// out = matrix times in, where the matrix has a column for each point: A^T, G^T or B.
template <class T, const auto& matrix>
inline void from_points(const Lanes<T>* in, int in_stride, Lanes<T>* out, int out_stride) {
  constexpr int kLast = matrix.kColumns - 1;
  // The values that rows multiply: the sum of a pair in even rows, the difference in odd ones. The second
  // place of a pair is unused.
  Lanes<T> even[matrix.kColumns] = {}, odd[matrix.kColumns] = {};
  even[0] = odd[0] = in[0];
  even[kLast] = odd[kLast] = in[kLast * in_stride];
#pragma GCC unroll 4
  for (int k = 1; k < kLast; k += 2) {
    const Lanes<T> plus = in[k * in_stride], minus = in[(k + 1) * in_stride];
    even[k] = plus + minus;
    odd[k] = plus - minus;
  }
#pragma GCC unroll 8
  for (int i = 0; i < matrix.kRows; ++i) {
    const Lanes<T>* values = i % 2 == 0 ? even : odd;
    Lanes<T> sum = {};
    bool begun = false;
#pragma GCC unroll 8
    for (int k = 0; k < matrix.kColumns; ++k) {
      if (matrix.at[i][k] == 0 || (k != 0 && k != kLast && k % 2 == 0)) continue;
      const Lanes<T> term = values[k] * T(matrix.at[i][k]);
      sum = begun ? sum + term : term;
      begun = true;
    }
    out[i * out_stride] = sum;
  }
}

// Row i of "matrix times in" for each of `count` neighbouring columns of in, whose rows lie in_stride apart.
template <class T, const auto& matrix, int i, int count>
inline void one_point(const Lanes<T>* in, int in_stride, Lanes<T>* out) {
#pragma GCC unroll 8
  for (int column = 0; column < count; ++column) {
    Lanes<T> values[matrix.kColumns];
#pragma GCC unroll 8
    for (int k = 0; k < matrix.kColumns; ++k) values[k] = in[k * in_stride + column];
    out[column] = row_times<T, matrix>(i, 0, 1, values);
  }
}

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
