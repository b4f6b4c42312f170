// RegisterLoops for the capability whose source includes this header.
#pragma once

#include <lockstep/models/layers/cpu/multiply.h>
#include <lockstep/models/layers/cpu/register_loop.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

// The next step of a chain. In float the sum is a factor: if neither factor changed, the compiler would
// multiply once, before the loop.
inline Lanes<float> next_sum(const Lanes<float>& sum, const Lanes<float>& values, float factor) {
  return multiply_add(values, sum, factor);
}
inline Lanes<float> next_sum(const Lanes<float>& sum, const UpperHalves& values, Bf16Pair factor) {
  return multiply_add(sum, values, factor);
}

// Uses the registers of multiply_block(). The sums start with different values: the compiler would merge
// equal chains.
template <class E>
inline float run_registers(int64_t rounds, E one) {
  E memory[kLanes];
  for (auto& value : memory) value = one;
  Lanes<Computed<E>> sums[kRowsAtOnce * kRegistersAtOnce];
  for (int i = 0; i < kRowsAtOnce * kRegistersAtOnce; ++i) sums[i] = Lanes<Computed<E>>{} + Computed<E>(i);
  const auto values = load_factors(memory);
  const E factor = one;
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (auto& sum : sums) sum = next_sum(sum, values, factor);
  }
  Computed<E> total = 0;
  for (const auto& sum : sums) total += sum_of<Computed<E>>(sum);
  return total;
}

inline constexpr int64_t kRoundOfFloats = 2 * kRowsAtOnce * kRegistersAtOnce * kLanes;

inline constexpr RegisterLoop kRegisterLoop = {.operations = kRoundOfFloats, .run = [](int64_t rounds) {
                                                 volatile float one =
                                                     1;  // or the compiler would do without products
                                                 return run_registers<float>(rounds, one);
                                               }};
inline constexpr RegisterLoop kBf16RegisterLoop = {.operations = 2 * kRoundOfFloats,
                                                   .run = [](int64_t rounds) {
                                                     volatile uint32_t ones = 0x3f803f80;
                                                     return run_registers<Bf16Pair>(rounds, {ones});
                                                   }};

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
