// Sums of collectives.h's whole numbers that use no tensor's operation.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include <lockstep/tests/parallel/collectives/collectives.h>

namespace lockstep::testing {

// The sum over all ranks of collectives.h's whole_numbers(), from their formula.
inline torch::Tensor sum_by_hand(int world, int64_t n, torch::ScalarType dtype) {
  const int64_t modulus = has_16_bits(dtype) ? 29 : 1'000'003;
  auto sums = torch::zeros({n}, torch::kFloat64);
  auto* sum = sums.mutable_data_ptr<double>();
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t rank = 0; rank < world; ++rank) {
      sum[i] += static_cast<double>((i * 7919 + rank * 104'729) % modulus - modulus / 2);
    }
  }
  return sums.to(dtype);
}

}  // namespace lockstep::testing
