// bfloat16, the upper half of a float. Conversions are in bf16.h. This header has no functions, because some
// sources must not have functions that the linker could merge (models/layers/cpu/lanes.h).
#pragma once

#include <stdint.h>

namespace lockstep {

struct Bf16 {
  uint16_t bits;
};

// Two consecutive bfloat16 factors of a dot product; the first is in the lower half.
struct Bf16Pair {
  uint32_t bits;
};

// The type that numbers stored as T are computed and summed in.
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
