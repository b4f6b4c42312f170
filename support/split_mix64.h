// SplitMix64 (Steele, Lea and Flood, 2014): a few integer operations per draw, so that any language can
// reproduce it. Kernels draw from it, too.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <lockstep/support/cuda/kernel.h>

namespace lockstep {

class SplitMix64 {
 public:
  // Each (seed, keys) has its own stream: state = mix(seed + gamma), then state = mix(state + key) for each
  // key.
  LOCKSTEP_HOST_DEVICE SplitMix64(uint64_t seed, std::initializer_list<uint64_t> keys)
      : state_(mix(seed + kGamma)) {
    for (uint64_t key : keys) add_key(key);
  }

  // Goes on with the stream that has one more key, if nothing was drawn yet.
  LOCKSTEP_HOST_DEVICE void add_key(uint64_t key) { state_ = mix(state_ + key); }

  LOCKSTEP_HOST_DEVICE uint64_t next() {
    state_ += kGamma;
    return mix(state_);
  }

  // Draws from 0 .. n-1, n at most 2^32: the upper half of a draw times n, shifted right by 32. No division,
  // no rejection.
  LOCKSTEP_HOST_DEVICE uint64_t below(uint64_t n) { return ((next() >> 32) * n) >> 32; }

 private:
  static constexpr uint64_t kGamma = 0x9E3779B97F4A7C15;

  LOCKSTEP_HOST_DEVICE static constexpr uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace lockstep
