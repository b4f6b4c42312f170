// Matrix products of row-major matrices, with neighbouring columns in the lanes.
//
// In bfloat16 an element of a and of b is a pair of numbers that are neighbours in the sum. CPUs with
// AVX512_BF16 multiply and add both at once, into a float: twice the rate of float. (LOCKSTEP_BF16_PRODUCTS:
// the source's capability has that instruction, for which GCC has no vector expression.)
#pragma once

#ifdef LOCKSTEP_BF16_PRODUCTS
#include <immintrin.h>  // all its functions are always inlined
#endif

#include <lockstep/models/layers/cpu/lanes.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

// The block of c that registers hold: rows times registers of columns.
inline constexpr int kRowsAtOnce = LOCKSTEP_LANES == 4 ? 4 : 6;
inline constexpr int kRegistersAtOnce = LOCKSTEP_LANES == 16 ? 4 : 2;
// Rows of b at a time: the columns that are multiplied at once stay in the first-level cache.
inline constexpr int kDepthAtOnce = 128;

// Loads the elements of b that are multiplied at once.
template <class E>
inline Lanes<E> load_factors(const E* from) {
  return load(from);
}
inline UpperHalves load_factors(const Bf16Pair* from) {
  typedef UpperHalves Unaligned __attribute__((aligned(4), may_alias));
  return *reinterpret_cast<const Unaligned*>(from);
}

// sum + values x factor
template <class E>
inline Lanes<E> multiply_add(const Lanes<E>& sum, const Lanes<E>& values, E factor) {
  return sum + values * factor;
}
inline Lanes<float> multiply_add(const Lanes<float>& sum, const UpperHalves& values, Bf16Pair factor) {
#ifdef LOCKSTEP_BF16_PRODUCTS
  return _mm512_dpbf16_ps(sum, (__m512bh)values, (__m512bh)(UpperHalves{} + factor.bits));
#else
  const auto pairs = UpperHalves{} + factor.bits;
  return sum + (Lanes<float>)(values << 16) * (Lanes<float>)(pairs << 16) +
         (Lanes<float>)(values & 0xffff0000) * (Lanes<float>)(pairs & 0xffff0000);
#endif
}

// Element (row, k) is at at[row * row_stride + k * depth_stride]: this describes a matrix or its transpose.
template <class E>
struct Strided {
  const E* at;
  int64_t row_stride, depth_stride;
};

// c (kRows, kRegisters x kLanes) = a b, or += a b.
template <class E, int kRows, int kRegisters>
inline void multiply_block(const Strided<E>& a, const E* b, int64_t b_stride, int depth, bool add,
                           Computed<E>* c, int64_t c_stride) {
  Lanes<Computed<E>> sum[kRows][kRegisters] = {};
  for (int k = 0; k < depth; ++k) {
    decltype(load_factors(b)) values[kRegisters];
#pragma GCC unroll 4
    for (int j = 0; j < kRegisters; ++j) values[j] = load_factors(b + k * b_stride + j * kLanes);
    const E* factors = a.at + k * a.depth_stride;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const E factor = factors[i * a.row_stride];
#pragma GCC unroll 4
      for (int j = 0; j < kRegisters; ++j) sum[i][j] = multiply_add(sum[i][j], values[j], factor);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kRegisters; ++j) {
      auto* to = c + i * c_stride + j * kLanes;
      store(add ? load(to) + sum[i][j] : sum[i][j], to);
    }
  }
}

template <class E, int kRegisters>
inline void multiply_columns(Strided<E> a, const E* b, int64_t b_stride, int rows, int depth, bool add,
                             Computed<E>* c, int64_t c_stride) {
  const auto next = [&](int count) {
    a.at += count * a.row_stride;
    c += count * c_stride;
    rows -= count;
  };
  for (; rows >= kRowsAtOnce; next(kRowsAtOnce)) {
    multiply_block<E, kRowsAtOnce, kRegisters>(a, b, b_stride, depth, add, c, c_stride);
  }
  for (; rows >= 2; next(2)) multiply_block<E, 2, kRegisters>(a, b, b_stride, depth, add, c, c_stride);
  if (rows == 1) multiply_block<E, 1, kRegisters>(a, b, b_stride, depth, add, c, c_stride);
}

// c (rows, columns) = a b, or c += a b, where b is (depth, columns). columns: a multiple of kLanes.
template <class T>
inline void multiply(const Strided<T>& a, const T* b, int64_t b_stride, int rows, int depth, int columns,
                     bool add, T* c, int64_t c_stride) {
  for (int first = 0; first < depth; first += kDepthAtOnce) {
    const int count = depth - first < kDepthAtOnce ? depth - first : kDepthAtOnce;
    const Strided<T> part{a.at + first * a.depth_stride, a.row_stride, a.depth_stride};
    const T* rows_of_b = b + first * b_stride;
    int column = 0;
    for (; column + kRegistersAtOnce * kLanes <= columns; column += kRegistersAtOnce * kLanes) {
      multiply_columns<T, kRegistersAtOnce>(part, rows_of_b + column, b_stride, rows, count, add || first > 0,
                                            c + column, c_stride);
    }
    for (; column < columns; column += kLanes) {
      multiply_columns<T, 1>(part, rows_of_b + column, b_stride, rows, count, add || first > 0, c + column,
                             c_stride);
    }
  }
}

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
