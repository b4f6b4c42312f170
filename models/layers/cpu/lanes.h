// Vectors of kLanes numbers, one per image (or channel): with them the kernels of models/layers/cpu/ read
// like the arithmetic of one image. Each CPU capability has one source that includes this header. It says how
// wide a register is (LOCKSTEP_LANES) and names the namespace of everything here (LOCKSTEP_LANES_NAMESPACE).
// The sources are compiled for different CPUs, so none may contain anything that the linker could merge with
// another's, such as an inline function of the standard library or of torch. Hence no other includes.
#pragma once

#include <stdint.h>

#include <lockstep/support/bf16_type.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

inline constexpr int kLanes = LOCKSTEP_LANES;

// GCC's vectors: arithmetic and comparisons work lane by lane, and an operand that is one number applies to
// all lanes.
template <class T>
struct LanesOf;
template <>
struct LanesOf<float> {
  typedef float Values __attribute__((vector_size(4 * LOCKSTEP_LANES)));
  typedef int32_t Integers __attribute__((vector_size(4 * LOCKSTEP_LANES)));
};
template <>
struct LanesOf<double> {
  typedef double Values __attribute__((vector_size(8 * LOCKSTEP_LANES)));
  typedef int64_t Integers __attribute__((vector_size(8 * LOCKSTEP_LANES)));
};
template <class T>
using Lanes = typename LanesOf<T>::Values;
template <class T>
using Integers = typename LanesOf<T>::Integers;
typedef uint8_t Bytes __attribute__((vector_size(LOCKSTEP_LANES)));

// The numbers 0, 1, ..., count - 1 as template arguments, to expand an expression once for each.
template <int... number>
struct NumberList {};
template <int count>
struct NumbersOf {
  using List = NumberList<__integer_pack(count)...>;
};
template <int count>
using NumbersTo = typename NumbersOf<count>::List;

template <class T>
inline T sum_of(const Lanes<T>& values) {
  T sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += values[i];
  return sum;
}

// Vectors in memory that is aligned for one number only.
template <class T>
struct UnalignedOf {
  typedef typename LanesOf<T>::Values Values __attribute__((aligned(sizeof(T)), may_alias));
};
template <class T>
inline Lanes<T> load(const T* from) {
  return *reinterpret_cast<const typename UnalignedOf<T>::Values*>(from);
}
template <class T>
inline void store(const Lanes<Computed<T>>& values, T* to) {
  *reinterpret_cast<typename UnalignedOf<T>::Values*>(to) = values;
}

// bfloat16 is the upper half of a float.
typedef uint32_t UpperHalves __attribute__((vector_size(4 * LOCKSTEP_LANES)));
typedef uint16_t Bf16s __attribute__((vector_size(2 * LOCKSTEP_LANES), aligned(2), may_alias));

// One instruction, for which GCC 12 makes five with 16 lanes: 3 % of a step of ResNet-18 in bfloat16.
inline UpperHalves widened(const Bf16s& values) {
#if LOCKSTEP_LANES == 16
  typedef int16_t Halves __attribute__((vector_size(32)));
  return (UpperHalves)__builtin_ia32_pmovzxwd512_mask((Halves)values, Integers<float>{}, 0xffff);
#else
  return __builtin_convertvector(values, UpperHalves);
#endif
}
inline Lanes<float> load(const Bf16* from) {
  return (Lanes<float>)(widened(*reinterpret_cast<const Bf16s*>(from)) << 16);
}
// Rounds to bfloat16 in the upper halves: to the nearest, ties to even. Adding may carry into the exponent,
// which is right; NaN is handled apart, since the carry could make it infinite.
inline UpperHalves rounded_to_bf16(const Lanes<float>& values) {
  const auto bits = (UpperHalves)values;
  const UpperHalves rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return values == values ? rounded : bits | 0x400000;
}
inline Bf16s to_bf16(const Lanes<float>& values) {
  return __builtin_convertvector(rounded_to_bf16(values) >> 16, Bf16s);
}
template <>
inline void store<Bf16>(const Lanes<float>& values, Bf16* to) {
  *reinterpret_cast<Bf16s*>(to) = to_bf16(values);
}

// Bit i of the result: whether lane i of a comparison holds. GCC would compute it lane by lane: 15 % of a
// batch norm's forward pass in bfloat16.
inline uint32_t bits_of(const Integers<float>& holds) {
#if LOCKSTEP_LANES == 16
  return __builtin_ia32_cvtd2mask512(holds);
#elif LOCKSTEP_LANES == 8
  return static_cast<uint32_t>(__builtin_ia32_movmskps256((Lanes<float>)holds));
#else
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(holds[i] & (1 << i));
  return bits;
#endif
}

// The values of the lanes whose bit is 1; 0 in the others.
template <int... lane>
inline Lanes<float> values_where(uint32_t bits, const Lanes<float>& values, NumberList<lane...>) {
  const Integers<float> bit_of_lane = {(1 << lane)...};
  return (bit_of_lane & static_cast<int32_t>(bits)) != 0 ? values : Lanes<float>{};
}
inline Lanes<float> values_where(uint32_t bits, const Lanes<float>& values) {
  return values_where(bits, values, NumbersTo<kLanes>());
}

// Loads numbers for the first `count` lanes; the others are 0.
template <class T>
inline Lanes<T> load_some(const T* from, int count) {
  if (count == kLanes) return load(from);
  Lanes<T> values = {};
  for (int i = 0; i < count; ++i) values[i] = from[i];
  return values;
}
template <class T>
inline void store_some(const Lanes<T>& values, int count, T* to) {
  if (count == kLanes) return store(values, to);
  for (int i = 0; i < count; ++i) to[i] = values[i];
}

// Cuts registers a and b into pieces of `width` lanes, numbered from 0. even_pieces: a's 0, b's 0, a's 2, b's
// 2, ... odd_pieces: a's 1, b's 1, a's 3, b's 3, ...
template <int width, class V, int... lane>
inline V even_pieces(const V& a, const V& b, NumberList<lane...>) {
  return __builtin_shufflevector(a, b, ((lane & ~width) + ((lane & width) == 0 ? 0 : kLanes))...);
}
template <int width, class V, int... lane>
inline V odd_pieces(const V& a, const V& b, NumberList<lane...>) {
  return __builtin_shufflevector(a, b, ((lane | width) + ((lane & width) == 0 ? 0 : kLanes))...);
}

// Lane i of the result is the sum of the lanes of values[i x step], of kLanes values. Adding in pairs takes a
// third of the time of kLanes times sum_of().
template <class T, int width = 1>
inline Lanes<T> sums_of(const Lanes<T>* values, int step = 1) {
  if constexpr (width == kLanes) {
    return *values;
  } else {
    const Lanes<T> a = sums_of<T, 2 * width>(values, 2 * step),
                   b = sums_of<T, 2 * width>(values + step, 2 * step);
    return even_pieces<width>(a, b, NumbersTo<kLanes>()) + odd_pieces<width>(a, b, NumbersTo<kLanes>());
  }
}

// Swaps lane i of values[k] and lane k of values[i], for kLanes values.
template <class T, int width = kLanes / 2>
inline void transpose(Lanes<T>* values) {
  if constexpr (width > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if ((i & width) != 0) continue;
      const Lanes<T> a = values[i], b = values[i + width];
      values[i] = even_pieces<width>(a, b, NumbersTo<kLanes>());
      values[i + width] = odd_pieces<width>(a, b, NumbersTo<kLanes>());
    }
    transpose<T, width / 2>(values);
  }
}

// into_lanes: `count` rows of `columns` numbers become columns x kLanes; lanes without a row are 0.
// from_lanes: the inverse.
template <class T>
inline void into_lanes(const T* rows, int count, int columns, Lanes<T>* lanes) {
  int first = 0;
  for (; first + kLanes <= columns; first += kLanes) {
    Lanes<T> values[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      values[i] = i < count ? load(rows + static_cast<int64_t>(i) * columns + first) : Lanes<T>{};
    }
    transpose<T>(values);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) lanes[first + i] = values[i];
  }
  for (; first < columns; ++first) {
    lanes[first] = Lanes<T>{};
    for (int i = 0; i < count; ++i) lanes[first][i] = rows[static_cast<int64_t>(i) * columns + first];
  }
}
template <class T>
inline void from_lanes(const Lanes<T>* lanes, int count, int columns, T* rows) {
  int first = 0;
  for (; first + kLanes <= columns; first += kLanes) {
    Lanes<T> values[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) values[i] = lanes[first + i];
    transpose<T>(values);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if (i < count) store(values[i], rows + static_cast<int64_t>(i) * columns + first);
    }
  }
  for (; first < columns; ++first) {
    for (int i = 0; i < count; ++i) rows[static_cast<int64_t>(i) * columns + first] = lanes[first][i];
  }
}

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
