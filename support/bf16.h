// Conversions between float and bfloat16, for kernels and the host. Needs no torch.
#pragma once

#include <cstdint>
#include <cstring>

#include <lockstep/support/bf16_type.h>
#include <lockstep/support/cuda/kernel.h>

namespace lockstep {

// Exact.
LOCKSTEP_HOST_DEVICE inline float to_float(Bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float wide;
  memcpy(&wide, &bits, sizeof(wide));
  return wide;
}

LOCKSTEP_HOST_DEVICE inline float to_float(float value) { return value; }

// Rounds to nearest, ties to even, as torch does. Values that are too large become infinite. Every NaN
// becomes torch's NaN, 0x7fc0.
LOCKSTEP_HOST_DEVICE inline Bf16 to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return Bf16{static_cast<uint16_t>(nan ? 0x7fc0u : rounded)};
}

// Converts to T: float or Bf16.
template <class T>
LOCKSTEP_HOST_DEVICE inline T from_float(float value);
template <>
LOCKSTEP_HOST_DEVICE inline float from_float<float>(float value) {
  return value;
}
template <>
LOCKSTEP_HOST_DEVICE inline Bf16 from_float<Bf16>(float value) {
  return to_bf16(value);
}

}  // namespace lockstep
