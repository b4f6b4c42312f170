// The arithmetic of a thread, and of the process.
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include <lockstep/tests/catch.h>

#include <memory>
#include <stdexcept>
#include <thread>

#include <lockstep/parallel/training/precision.h>

using namespace lockstep;
using torch::kFloat32;
using torch::kFloat64;
using torch::Tensor;

namespace {

torch::ScalarType matmul_dtype() { return torch::ones({4, 4}).mm(torch::ones({4, 4})).scalar_type(); }

}  // namespace

TEST_CASE("matmuls are bfloat16 while an autocast guard lives, and float before and after") {
  CHECK(matmul_dtype() == kFloat32);
  {
    const AutocastGuard guard(Precision::kBf16, torch::kCPU);
    CHECK(matmul_dtype() == torch::kBFloat16);
    {
      const AutocastGuard inner(Precision::kBf16, torch::kCPU);
      CHECK(matmul_dtype() == torch::kBFloat16);
    }
    CHECK(matmul_dtype() == torch::kBFloat16);
    {
      const AutocastGuard other_device(Precision::kBf16, torch::kCUDA);
      CHECK(matmul_dtype() == torch::kBFloat16);
    }
    CHECK(matmul_dtype() == torch::kBFloat16);
  }
  CHECK(matmul_dtype() == kFloat32);
  try {
    const AutocastGuard guard(Precision::kBf16, torch::kCPU);
    throw std::runtime_error("a failing layer");
  } catch (const std::runtime_error&) {
  }
  CHECK(matmul_dtype() == kFloat32);
}

TEST_CASE("matmuls are float16 with fp16, and bfloat16 where a bf16 guard is inside") {
  const AutocastGuard guard(Precision::kFp16, torch::kCPU);
  CHECK(matmul_dtype() == torch::kFloat16);
  CHECK(type_of_layers(Precision::kFp16) == torch::kFloat16);
  {
    const AutocastGuard inner(Precision::kBf16, torch::kCPU);
    CHECK(matmul_dtype() == torch::kBFloat16);
  }
  CHECK(matmul_dtype() == torch::kFloat16);
}

TEST_CASE("the other precisions leave autocast as it is") {
  for (const auto precision : {Precision::kFp32, Precision::kTf32, Precision::kFp64}) {
    const AutocastGuard guard(precision, torch::kCPU);
    CHECK(matmul_dtype() == kFloat32);
    const AutocastGuard on(Precision::kBf16, torch::kCPU);
    const AutocastGuard again(precision, torch::kCPU);
    CHECK(matmul_dtype() == torch::kBFloat16);
  }
  CHECK(matmul_dtype() == kFloat32);
}

TEST_CASE("an autocast guard restores the caller's settings") {
  at::autocast::set_autocast_dtype(at::kCPU, torch::kFloat16);
  { const AutocastGuard guard(Precision::kBf16, torch::kCPU); }
  CHECK(at::autocast::get_autocast_dtype(at::kCPU) == torch::kFloat16);
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));

  at::autocast::set_autocast_enabled(at::kCPU, true);
  { const AutocastGuard guard(Precision::kBf16, torch::kCPU); }
  CHECK(at::autocast::is_autocast_enabled(at::kCPU));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
}

TEST_CASE("an autocast guard affects only its own thread") {
  const AutocastGuard guard(Precision::kBf16, torch::kCPU);
  torch::ScalarType elsewhere{};
  std::jthread([&] { elsewhere = matmul_dtype(); }).join();
  CHECK(elsewhere == kFloat32);
  std::jthread([&] { const AutocastGuard other(Precision::kBf16, torch::kCPU); }).join();
  CHECK(matmul_dtype() == torch::kBFloat16);
}

TEST_CASE("with autocast the fp32 masters and their gradients stay float") {
  const auto weights = torch::ones({4, 4}).requires_grad_();
  Tensor loss;
  {
    const AutocastGuard guard(Precision::kBf16, torch::kCPU);
    loss = torch::ones({2, 4}).mm(weights).sum();
  }
  loss.backward();
  CHECK(weights.grad().scalar_type() == kFloat32);
  CHECK(weights.grad().equal(torch::full({4, 4}, 2.F)));  // each weight is multiplied by two rows of ones
}

TEST_CASE("each guard converts the current weights, not those of an earlier guard") {
  const auto weights = torch::ones({4, 4}).requires_grad_();
  for (const float value : {1.F, 2.F, 3.F}) {
    weights.detach().fill_(value);
    const AutocastGuard guard(Precision::kBf16, torch::kCPU);
    for (int twice = 0; twice < 2; ++twice) {
      const AutocastGuard inner(Precision::kBf16, torch::kCPU);
      const auto product = torch::ones({2, 4}).mm(weights);
      CHECK(product.to(kFloat32).equal(torch::full({2, 4}, 4 * value)));
    }
  }
}

TEST_CASE("parameters are float, except with fp64") {
  CHECK(dtype_of(Precision::kFp32) == kFloat32);
  CHECK(dtype_of(Precision::kTf32) == kFloat32);
  CHECK(dtype_of(Precision::kBf16) == kFloat32);
  CHECK(dtype_of(Precision::kFp16) == kFloat32);
  CHECK(dtype_of(Precision::kFp64) == kFloat64);
}

TEST_CASE("set_arithmetic() sets TF32 and determinism") {
  auto& context = at::globalContext();
  for (const bool deterministic : {true, false}) {
    for (const auto precision : {Precision::kTf32, Precision::kFp32, Precision::kBf16, Precision::kFp64}) {
      set_arithmetic(precision, deterministic);
      CHECK(context.allowTF32CuBLAS() == (precision == Precision::kTf32));
      CHECK(context.allowTF32CuDNN() == (precision == Precision::kTf32));
      CHECK(context.deterministicAlgorithms() == deterministic);
      CHECK(context.deterministicCuDNN() == deterministic);
      CHECK(context.benchmarkCuDNN() == !deterministic);
    }
  }
}

TEST_CASE("the search for algorithms of convolutions comes back when the last holds it off no more") {
  auto& context = at::globalContext();
  for (const bool search : {true, false}) {
    context.setBenchmarkCuDNN(search);
    auto first = std::make_unique<NoConvolutionSearch>();
    auto second = std::make_unique<NoConvolutionSearch>();
    CHECK_FALSE(context.benchmarkCuDNN());
    first.reset();  // in the order of their begins, as in two threads
    CHECK_FALSE(context.benchmarkCuDNN());
    second.reset();
    CHECK(context.benchmarkCuDNN() == search);
  }
}
