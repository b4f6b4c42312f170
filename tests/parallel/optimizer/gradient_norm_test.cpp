// The norm of all gradients against torch's clip_grad_norm_ and a sum in the order that the header promises.
#include <ATen/Parallel.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>

#include <lockstep/tests/catch.h>
#include <cmath>
#include <limits>
#include <vector>

#include <lockstep/parallel/optimizer/gradient_norm.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;
using torch::kFloat32;
using torch::kFloat64;
using torch::Tensor;

namespace {

Tensor numbers(int64_t n, torch::ScalarType dtype = kFloat64) {  // (n)
  at::manual_seed(5);
  return torch::randn({n}, kFloat64).to(dtype);
}

Tensor sums_of(const std::vector<Tensor>& pieces) { return block_sums(pieces); }

double scale_of(const Tensor& grads, double max_norm) {
  return clip_scale(sums_of({grads}), max_norm).item<double>();
}

}  // namespace

TEST_CASE("clipping agrees with torch's clip_grad_norm_") {
  for (const int64_t n : {1, 997, 100'003}) {
    for (const double max_norm : {.5, 1., 1e6}) {
      const auto grads = numbers(n);
      auto param = torch::zeros({n}, kFloat64).requires_grad_();
      param.mutable_grad() = grads.clone();
      torch::nn::utils::clip_grad_norm_(param, max_norm);
      INFO(n << " elements to " << max_norm);
      CHECK(max_difference(grads * scale_of(grads, max_norm), param.grad()) < 1e-14);
    }
  }
}

TEST_CASE("clipping by hand: long gradients are scaled, short ones are not") {
  // 1e-6: torch's small term beside the norm of 5
  CHECK(scale_of(torch::tensor({3., 4.}, kFloat64), 1) == Approx(.2).epsilon(1e-6));
  CHECK(scale_of(numbers(997, kFloat32), 1000) == 1);
  CHECK(scale_of(torch::zeros({10}), 1) == 1);
  CHECK(scale_of(torch::zeros({0}), 1) == 1);
  // NaN is not hidden.
  CHECK(std::isnan(scale_of(torch::tensor({1., std::numeric_limits<double>::quiet_NaN()}, kFloat64), 1)));
}

// In float the sum of so many squares would be lost.
TEST_CASE("the norm of float gradients is summed in double") {
  const int64_t n = (int64_t{1} << 24) + 40;
  const auto sum = sums_of({torch::ones({n}, kFloat32)}).sum().item<double>();
  CHECK(sum == static_cast<double>(n));
  // The squares of these are no floats.
  CHECK(sums_of({torch::full({n}, 1e-30, kFloat32)}).sum().item<double>() ==
        Approx(static_cast<double>(n) * 1e-60).epsilon(1e-6));
}

TEST_CASE("the norm depends neither on threads nor on the pieces in which the gradients lie") {
  const auto dtype = GENERATE(kFloat32, kFloat64);
  const auto grads = numbers(5 * kFlatBlock + 48, dtype);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto expected = sums_of({grads});
  at::set_num_threads(3);
  CHECK(expected.size(0) == 6);
  CHECK(sums_of({grads}).equal(expected));
  CHECK(sums_of({grads.narrow(0, 0, 2 * kFlatBlock).clone(),
                 grads.narrow(0, 2 * kFlatBlock, 3 * kFlatBlock + 48).clone()})
            .equal(expected));
  at::set_num_threads(before);
  for (int64_t block = 0; block < 6; ++block) {
    const auto part = grads.slice(0, block * kFlatBlock, (block + 1) * kFlatBlock).to(kFloat64);
    CHECK(expected[block].item<double>() == Approx((part * part).sum().item<double>()).epsilon(1e-12));
  }
}
