// bfloat16, the upper half of a float. Arithmetic is in bf16.h; without functions, for sources that may have
// none that the linker might merge (models/cpu/lanes.h).
#pragma once

#include <stdint.h>

namespace lockstep {

struct Bf16 {
  uint16_t bits;
};

// Two that are neighbours in a sum of products; the first is in the lower half.
struct Bf16Pair {
  uint32_t bits;
};

// What numbers that lie in memory as T are computed and added up in.
template <class T>
struct ComputedAs {
  using Type = T;
};
template <>
struct ComputedAs<Bf16> {
  using Type = float;
};
template <>
struct ComputedAs<Bf16Pair> {
  using Type = float;
};
template <class T>
using Computed = typename ComputedAs<T>::Type;

}  // namespace lockstep
