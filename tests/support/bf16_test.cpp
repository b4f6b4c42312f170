// bfloat16 against torch's.
#include <lockstep/support/bf16.h>

#include <c10/util/BFloat16.h>

#include <lockstep/tests/catch.h>
#include <bit>
#include <cmath>

using namespace lockstep;

TEST_CASE("every bfloat16 converts to float and back exactly") {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Bf16 value{static_cast<uint16_t>(bits)};
    const float wide = to_float(value);
    const float expected = c10::BFloat16(value.bits, c10::BFloat16::from_bits());
    if (std::isnan(expected)) {
      wrong += !std::isnan(wide) || !std::isnan(to_float(to_bf16(wide)));
    } else {
      wrong += std::bit_cast<uint32_t>(wide) != std::bit_cast<uint32_t>(expected) ||
               to_bf16(wide).bits != value.bits;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("floats are rounded to bfloat16 as in torch") {
  int wrong = 0;
  const auto check = [&](uint32_t bits) {
    const auto value = std::bit_cast<float>(bits);
    wrong += to_bf16(value).bits != c10::BFloat16(value).x;
  };
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 1009) check(static_cast<uint32_t>(bits));
  // Halfway between two, just below and above; with the largest, the infinities and NaN.
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      check(upper << 16 | lower);
  }
  CHECK(wrong == 0);
  CHECK(to_bf16(1.00390625f).bits == 0x3f80);  // 1 + 2^-8 lies halfway: to the even 1
  CHECK(to_bf16(1.01171875f).bits == 0x3f82);  // 1 + 3 x 2^-8: to the even 1 + 2^-6
}
