// bfloat16, the upper half of a float. Arithmetic is in bf16.h; without functions, for sources that may have
// none that the linker might merge (models/cpu/lanes.h).
#pragma once

#include <stdint.h>

namespace lockstep {

struct Bf16 {
  uint16_t bits;
};

// What numbers that lie in memory as T are computed in.
template <class T>
struct ComputedAs {
  using Type = T;
};
template <>
struct ComputedAs<Bf16> {
  using Type = float;
};
template <class T>
using Computed = typename ComputedAs<T>::Type;

}  // namespace lockstep
