// The emulated kernel (flat_sgd_emulated.cpp).
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/optimizer/flat_sgd_cases.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

#include <limits>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("the SGD kernel agrees with torch") {
  emulated_order = GENERATE(ThreadOrder::kForward, ThreadOrder::kBackward);
  check_flat_sgd<float>(torch::kCPU);
  check_flat_sgd<double>(torch::kCPU);
}

TEST_CASE("without weight decay an infinite parameter stays infinite, and NaN reaches the bf16 weights") {
  float params[] = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
  float grads[] = {1, 1};
  Bf16 bf16[2] = {};
  const double lr = .1;
  flat_sgd(FlatSgdBuffers<float>{params, grads, nullptr, bf16, 2}, {}, &lr, nullptr, nullptr);
  CHECK(params[0] == std::numeric_limits<float>::infinity());
  CHECK(to_float(bf16[0]) == std::numeric_limits<float>::infinity());
  CHECK(std::isnan(to_float(bf16[1])));
}

TEST_CASE("buffers that do not fit the options are refused") {
  float values[1] = {};
  const double lr = .1;
  const auto step = [&](float* momentum, const FlatSgdOptions& options) {
    flat_sgd(FlatSgdBuffers<float>{values, values, momentum, nullptr, 1}, options, &lr, nullptr, nullptr);
  };
  CHECK_THROWS_AS(step(nullptr, {.momentum = .9}), UsageError);
  CHECK_THROWS_AS(step(values, {.momentum = 0}), UsageError);
  CHECK_THROWS_AS(step(nullptr, {.nesterov = true}), UsageError);
}
