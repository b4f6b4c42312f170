// add_numbers() on the CPU (emulated) or a GPU.
#pragma once

#include <torch/types.h>

#include <lockstep/tests/catch.h>
#include <cmath>
#include <limits>
#include <vector>

#include <lockstep/parallel/training/number_sums.h>
#include <lockstep/support/cuda/stream.h>

namespace lockstep::testing {

// Steps 4, 5, ... with these losses, beside a count, a double, and nothing else of the 32.
inline torch::Tensor sums_after(torch::Device device, const std::vector<float>& losses) {
  const auto on_device = torch::dtype(torch::kFloat64).device(device);
  auto sums =
      torch::tensor({1., 2., 3., std::numeric_limits<double>::infinity()}, torch::kFloat64).to(device);
  auto step = torch::full({}, 4, on_device);
  const auto count = torch::full({}, (int64_t{1} << 53) - 7, torch::dtype(torch::kInt64).device(device));
  const auto weight = torch::full({}, .1, on_device);
  auto* const memory = sums.mutable_data_ptr<double>();
  for (const auto loss : losses) {
    const auto number = torch::full({}, loss, torch::dtype(torch::kFloat32).device(device));
    NumberSums all;
    all.count = 3;
    all.sums = memory;
    all.first_bad = memory + 3;
    all.step = step.const_data_ptr<double>();
    all.numbers[0] = {number.const_data_ptr(), NumberType::kFloat};
    all.numbers[1] = {count.const_data_ptr(), NumberType::kInt64};
    all.numbers[2] = {weight.const_data_ptr(), NumberType::kDouble};
    add_numbers(all, native_stream(device));
    step.add_(1);
  }
  return sums.cpu();
}

inline void check_number_sums(torch::Device device) {
  constexpr auto kInfinity = std::numeric_limits<double>::infinity();
  const auto two = sums_after(device, {.5F, 2.25F});
  CHECK(two.slice(0, 0, 3).equal(
      torch::tensor({3.75, 2 + 2 * ((1LL << 53) - 7.), 3 + .1 + .1}, torch::kFloat64)));
  CHECK(two[3].item<double>() == kInfinity);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    const auto sums = sums_after(device, {1, bad, 1, bad});
    CHECK(!std::isfinite(sums[0].item<double>()));
    CHECK(sums[3].item<double>() == 5);  // the first of them
  }
}

}  // namespace lockstep::testing
