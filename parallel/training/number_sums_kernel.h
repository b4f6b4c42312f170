// The kernel of number_sums.h. support/cuda/kernel.h explains how such headers are compiled.
#pragma once

#include <lockstep/parallel/training/number_sums.h>
#include <lockstep/support/cuda/kernel.h>

namespace lockstep {

LOCKSTEP_HOST_DEVICE inline double value_of(const DeviceNumber& number) {
  switch (number.type) {
    case NumberType::kFloat:
      return *static_cast<const float*>(number.at);
    case NumberType::kInt64:
      return static_cast<double>(*static_cast<const int64_t*>(number.at));
    default:
      return *static_cast<const double*>(number.at);
  }
}

// Adds number i. The caller has one thread for each.
LOCKSTEP_HOST_DEVICE inline void add_number(const NumberSums& all, int i) {
  const double value = value_of(all.numbers[i]);
  all.sums[i] += value;
  const bool is_finite = value - value == 0;
  if (i == 0 && !is_finite && *all.step < *all.first_bad) *all.first_bad = *all.step;
}

template <class Sums>
__global__ void number_sums_kernel(Sums all) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < all.count) add_number(all, i);
}

template <class Launch>
void add_numbers_with(const Launch& launch, const NumberSums& numbers) {
  launch(number_sums_kernel<NumberSums>, dim3{1, 1, 1}, dim3{NumberSums::kMost, 1, 1}, numbers);
}

}  // namespace lockstep
